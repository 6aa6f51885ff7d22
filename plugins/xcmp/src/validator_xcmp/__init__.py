# SPDX-License-Identifier: Apache-2.0
"""XCMP channels: the protocol of xcmp_channels.txt (document 000), in which the relay chain stores roots and never messages."""

__version__ = "0.1.0"
