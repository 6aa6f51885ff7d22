# SPDX-License-Identifier: Apache-2.0
"""Text of others on a line of ours."""

from __future__ import annotations

import json


def printable(text: str) -> str:
    """Return a text that fits on one line: unchanged, or escaped as in JSON if it holds anything unprintable."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


def quoted(text: str) -> str:
    """Return a text in quotes, on one line, that cannot be taken for what stands next to it."""
    return json.dumps(text, ensure_ascii=not text.isprintable())
