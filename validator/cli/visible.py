# SPDX-License-Identifier: Apache-2.0
"""What the command line prints of strangers' text (`validator.visible`)."""

from validator.visible import printable, printable_lines

__all__ = ["printable", "printable_lines"]
