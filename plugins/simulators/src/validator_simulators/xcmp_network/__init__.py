# SPDX-License-Identifier: Apache-2.0
"""Simulated traffic of chains with ingress queues, and the naive model that judges it."""
