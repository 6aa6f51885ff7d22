# SPDX-License-Identifier: Apache-2.0
"""Streaming validation of relay-chain message traffic."""

__version__ = "1.0.0"

DISTRIBUTION = "relay-validator"
"""The name under which it is installed; the package index has another project by the name of this module."""
