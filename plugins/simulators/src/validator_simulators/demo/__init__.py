# SPDX-License-Identifier: Apache-2.0
"""Simulated chains on real topics: fed block by block, and their verdicts compared with a model that shares no code with the core.

In come a protocol's simulation and a seed. Out go records on the input topics, and what differs on the output topics.
"""
