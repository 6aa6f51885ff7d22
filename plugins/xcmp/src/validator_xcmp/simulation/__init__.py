# SPDX-License-Identifier: Apache-2.0
"""Simulated chains under XCMP channels, and a naive model that tells their verdicts and shares no code with the rules."""
