# SPDX-License-Identifier: Apache-2.0
"""The offsets that a job has passed over, because no process of it could unpack a producer's batch; notes in its checkpoint.

A note is written before the offsets are passed over, and never changed: whichever attempt writes first decides for all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from secrets import token_hex
from typing import Final

from streaming.ranges import OffsetRange

_FOLDER: Final = "passed-over"


def passed_over_folder(checkpoint: Path | str) -> str:
    """Return the folder of a checkpoint's notes: with the checkpoint, they are gone, too."""
    return str(Path(checkpoint).absolute() / _FOLDER)


class PassedOver:
    """The notes in a folder, which need not exist: a file's name has topic, partition and first offset, its content the offset behind."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def within(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return what is passed over of some ranges, by partition and offset."""
        noted = self._noted()
        return sorted(
            each
            for each in noted
            if any(each[:2] == of[:2] and each.first < of.end and each.end > of.first for of in ranges)
        )

    def note(self, span: OffsetRange) -> None:
        """Pass offsets over, unless another attempt has noted others from the same one on. Raises `OSError`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        first = f"{span.topic}@{span.partition}@{span.first}"
        made = self._folder / f".{token_hex(8)}"
        with made.open("w", encoding="ascii") as file:
            file.write(f"{span.end}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(made, self._folder / first)
        except FileExistsError:
            pass
        finally:
            made.unlink()

    def _noted(self) -> list[OffsetRange]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - one call
        except FileNotFoundError:
            return []
        return [self._of(name) for name in names if not name.startswith(".")]

    def _of(self, name: str) -> OffsetRange:
        topic, partition, first = name.rsplit("@", 2)
        end = int((self._folder / name).read_text(encoding="ascii"))
        return OffsetRange(topic, int(partition), int(first), end)
