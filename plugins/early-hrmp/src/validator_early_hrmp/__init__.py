# SPDX-License-Identifier: Apache-2.0
"""Early HRMP: the protocol of early_hrmp.txt (document 001), before channels had limits and queues of their own."""

__version__ = "0.1.0"
