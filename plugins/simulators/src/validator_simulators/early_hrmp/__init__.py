# SPDX-License-Identifier: Apache-2.0
"""Simulated chains under early HRMP, and the naive model that computes their verdicts. It shares no code with the rules."""
