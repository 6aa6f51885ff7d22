# SPDX-License-Identifier: Apache-2.0
"""Follows a relay chain through a node's JSON-RPC and makes the records of a lane of its blocks."""

__version__ = "1.0.0"
