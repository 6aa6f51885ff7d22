# SPDX-License-Identifier: Apache-2.0
"""Simulated chains under early HRMP, and a naive model that tells their verdicts and shares no code with the rules."""
