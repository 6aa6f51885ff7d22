# SPDX-License-Identifier: Apache-2.0
"""XCMP networking: the protocol of xcmp_networking.txt (document 002). The relay chain stores one entry for each logical message."""

__version__ = "1.0.0"
