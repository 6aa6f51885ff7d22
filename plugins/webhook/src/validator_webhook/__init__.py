# SPDX-License-Identifier: Apache-2.0
"""Webhooks: posts records of output topics to subscribers. In come committed records, out go signed requests."""

__version__ = "1.0.0"
