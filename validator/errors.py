# SPDX-License-Identifier: Apache-2.0
"""What a user did that cannot work: told in one line, never as a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or environment; the message names the thing, what was expected and what was found.

    The command line prints it as one line on stderr and ends with exit code 2.
    """
