# SPDX-License-Identifier: Apache-2.0
"""Unpacks a block for the audit. The process of the lane, which may be hostile, has packed it: what runs is not taken from it."""

from __future__ import annotations

import pickle
import sys
from dataclasses import is_dataclass
from enum import Enum
from io import BytesIO
from typing import Any, ClassVar, Final

from validator.core.execute import Intervals
from validator.core.types import Block
from validator.lanes.apart.wire import Nonsense

_PARTS: Final = 3


class _Unpickler(pickle._Unpickler):  # the one in Python, whose steps can be replaced
    """Makes only records: named tuples, data classes and enumerations of the program and its protocols."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        found = getattr(sys.modules.get(module), name, None)
        is_record = isinstance(found, type) and (
            is_dataclass(found) or issubclass(found, Enum) or (issubclass(found, tuple) and hasattr(found, "_fields"))
        )
        if not is_record:
            raise Nonsense(f"a block with {module}.{name}")
        return found

    def load_build(self) -> None:
        if isinstance(self.stack[-2], type):  # the state of a class would be code for all of its records
            raise Nonsense(f"a block that changes {self.stack[-2].__name__}")
        super().load_build()  # type: ignore[misc]

    dispatch[pickle.BUILD[0]] = load_build


def unpacked_block(data: bytes) -> tuple[list[bytes], Block, Intervals]:
    """Return the state before a block in pages, the block, and the intervals. Raises `Nonsense`, and whatever unpickling raises."""
    found = _Unpickler(BytesIO(data)).load()
    if type(found) is not tuple or len(found) != _PARTS:
        raise Nonsense("no block")
    before, block, intervals = found
    if type(before) is not list or type(block) is not Block or type(intervals) is not Intervals:
        raise Nonsense("no block")
    return before, block, intervals
