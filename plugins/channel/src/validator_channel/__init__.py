# SPDX-License-Identifier: Apache-2.0
"""Channel, profile channel/1: a peer-to-peer protocol of encrypted messages in sessions and topics; `net` is its transport."""

__version__ = "0.1.0"
