# SPDX-License-Identifier: Apache-2.0
"""Journeys of cross-chain messages: where each was queued, what became of it, and how long it waited."""

__version__ = "1.0.0"
