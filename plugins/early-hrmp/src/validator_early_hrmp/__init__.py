# SPDX-License-Identifier: Apache-2.0
"""Early HRMP: the protocol of early_hrmp.txt (document 001), before each channel got its own limits and queue."""

__version__ = "1.0.0"
