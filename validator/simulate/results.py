# SPDX-License-Identifier: Apache-2.0
"""Results of naive models, in the format of the traces."""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


def accepted() -> Json:
    """Return the result of an input that breaks no rule."""
    return {"ok": True}


def failed(kind: str, **fields: Any) -> Json:
    """Return the result of a broken rule: its kind and its fields."""
    return {"ok": False, "error": {"kind": kind, **fields}}


def size_of(payload: str) -> int:
    """Return the length in bytes of a hex payload."""
    return len(payload) // 2
