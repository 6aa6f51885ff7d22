# SPDX-License-Identifier: Apache-2.0
"""Bodies of XCMP messages: cut, verified, requested again and handed over in order. Source: xcmp_networking.txt."""

__version__ = "1.0.0"
