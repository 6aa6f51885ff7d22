# SPDX-License-Identifier: Apache-2.0
"""Simulated chains under the Router, and a naive model that gives their verdicts and shares no code with the rules."""
