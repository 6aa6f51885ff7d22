# SPDX-License-Identifier: Apache-2.0
"""Streaming validation of relay-chain message traffic."""

__version__ = "0.1.0"
