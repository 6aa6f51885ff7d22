# SPDX-License-Identifier: Apache-2.0
"""Preparation of the job's Python workers."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
from collections.abc import Iterable
from typing import Final, TextIO

from validator.lanes import garbage
from validator.lanes.definition import LaneDefinition
from validator.plugin.pack import check_artefacts_in_use
from validator.plugin.runtime import Epoch, RuntimePlan

EXECUTES: Final = "executes lane"
"""How a worker's last words begin."""

WRITER_BYTES: Final = 192 * 1024 * 1024
"""Bytes that the Kafka clients of one lane take in addition to a worker's own memory: the stacks of a dozen threads of 8 MiB, which count
whole although little of them is used, and the records that wait to be sent."""

_REUSED: Final = "SPARK_REUSE_WORKER"
"""The variable that Spark sets in a worker that it uses for several tasks."""

_tuned = False
_bounded_to: int | None = None
"""Bytes of the limit that this worker has."""

_last_words: TextIO | None = None
_checked: dict[str, tuple[RuntimePlan, tuple[Epoch, ...]]] = {}


def tune_garbage_collector() -> None:
    """Tune the collector once per worker, and exclude what survived the last task, after which Spark's worker has collected everything."""
    global _tuned
    if not _tuned:
        garbage.tune()
        _tuned = True
    elif _REUSED in os.environ:
        garbage.freeze_survivors()


def check_plugins(definitions: Iterable[LaneDefinition]) -> None:
    """Check once per worker its artefacts, and that it has the driver's plugins.

    A lane with handlers is checked where it executes (`validator.lanes.apart`): they are not imported here. Raises `UserError` as
    `check_artefact` and `LaneDefinition.check` do.
    """
    if not _checked:
        check_artefacts_in_use()
    for definition in definitions:
        if definition.has_handlers:
            continue
        wanted = (definition.plan, definition.epochs)
        if _checked.get(definition.name) != wanted:
            definition.check()
            _checked[definition.name] = wanted


def used_bytes() -> int:
    """Return the writable private memory of this process, 0 where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    except (OSError, StopIteration):
        return 0


def bound_worker(memory_bytes: int, lanes: int) -> None:
    """Limit a worker's memory; a worker that Spark uses again, for another query, gets that query's limit.

    Beyond ``memory_bytes`` of data, and what the clients of its ``lanes`` take, an allocation raises `MemoryError` in the code that asks
    for it; otherwise the system would kill some process. Linux counts writable private memory; on other systems the limit may have no
    effect.
    """
    global _bounded_to, _last_words
    wanted = memory_bytes + lanes * WRITER_BYTES
    if _bounded_to == wanted:
        return
    is_first, _bounded_to = _bounded_to is None, wanted
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    if not is_first:
        return
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")  # Spark reports what is written there when the worker dies
    if folder is None:
        return
    _last_words = open(f"{folder}/{os.getpid()}", "a", encoding="utf-8")  # noqa: PTH123, SIM115
    faulthandler.enable(_last_words)  # otherwise the stack of a crash would overwrite what `note_point` wrote


def note_point(lane: str, point: str) -> None:
    """Leave in the worker's last words which lane it executes, and from which state; Spark reports them if the worker dies."""
    if _last_words is not None:
        os.ftruncate(_last_words.fileno(), 0)
        _last_words.write(f"{EXECUTES} {json.dumps([lane, point])}\n")
        _last_words.flush()


def forget_point() -> None:
    """Take the last words back: whatever ends the worker from now on, the lane is no longer executed."""
    if _last_words is not None:
        os.ftruncate(_last_words.fileno(), 0)
