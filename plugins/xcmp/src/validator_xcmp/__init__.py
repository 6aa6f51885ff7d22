# SPDX-License-Identifier: Apache-2.0
"""XCMP channels: the protocol of xcmp_channels.txt (document 000). The relay chain stores roots, never messages."""

__version__ = "1.0.0"
