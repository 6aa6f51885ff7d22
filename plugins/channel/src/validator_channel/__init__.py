# SPDX-License-Identifier: Apache-2.0
"""Channel, profile channel/1: the sans-IO core of a peer-to-peer protocol of encrypted messages in sessions and topics."""

__version__ = "0.1.0"
