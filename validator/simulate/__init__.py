# SPDX-License-Identifier: Apache-2.0
"""Seeded relay-chain traffic with verdicts to expect, from a model that shares nothing with the core."""
