# SPDX-License-Identifier: Apache-2.0
"""Recordings as files: gzipped JSON lines, readable without any class of the product.

A line is an object with ``group`` (what it belongs to, such as ``record/polkadot/verdicts``), ``at`` (its name or its position in that
group) and ``value``: bytes in lower-case hex, or plain JSON. All other members say where it comes from; they are compared as well.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

Line: TypeAlias = dict[str, Any]

FOLDER = Path(__file__).resolve().parent / "recording"
INPUTS, LANES, DOCUMENTS, JOB = "inputs", "lanes", "documents", "job"


def path_of(name: str, folder: Path = FOLDER) -> Path:
    """Return the path of a recording."""
    return folder / f"{name}.jsonl.gz"


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Write a recording; the same lines give the same bytes."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(text.encode("ascii"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed.getvalue())


def read_lines(path: Path) -> list[Line]:
    """Read a recording. Raises ``OSError``, ``ValueError``."""
    with gzip.open(path, "rt", encoding="ascii") as file:
        return [json.loads(line) for line in file]
