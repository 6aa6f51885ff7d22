# SPDX-License-Identifier: Apache-2.0
"""Runs a target on mutated inputs, with bounds on the time of an input and the memory of the process."""

from __future__ import annotations

import resource
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.mutator import Mutator
from tests.fuzz.target import BINARY_WORDS, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS: Final = Path(__file__).parent / "corpus"
"""One file for each target, `NAME.hex`: inputs that once broke a promise, each a line of hex."""
INPUT_SECONDS_MAX: Final = 20
"""Seconds of processor time that one input may take: a hundred times what the slowest takes, however busy the machine is."""
MEMORY_MIB_MAX: Final = 512
"""MiB by which the process may grow during a target."""


class Finding(Exception):
    """An input broke a promise."""

    def __init__(self, target: str, data: bytes, error: BaseException) -> None:
        super().__init__(f"{target}: {type(error).__name__}: {error}: input {data.hex()}")
        self.target = target
        self.data = data


class TookTooLong(Exception):
    """An input took longer than `INPUT_SECONDS_MAX`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many inputs a target was given, how many it accepted, and by how many MiB the process grew."""

    inputs: int
    accepted: int
    grown_mib: int


def kept_inputs(target: Target) -> list[bytes]:
    """Return the inputs of the corpus."""
    path = CORPUS / f"{target.name}.hex"
    return [bytes.fromhex(line) for line in path.read_text("ascii").split()] if path.exists() else []


def keep(name: str, data: bytes) -> None:
    """Add an input to the corpus."""
    CORPUS.mkdir(exist_ok=True)
    with (CORPUS / f"{name}.hex").open("a", encoding="ascii") as file:
        file.write(f"{data.hex()}\n")


def run(target: Target, inputs: int, seed: int) -> Outcome:
    """Give a target its seeds, its corpus and ``inputs`` mutated ones. Raises `Finding`."""
    seeds, before = target.seeds(), _peak_mib()
    for data in seeds:
        if not _try(target, data):
            raise Finding(target.name, data, AssertionError("a seed is refused"))
    kept = kept_inputs(target)
    accepted = sum(_try(target, data) for data in kept)
    mutator = Mutator([*seeds, *kept], target.words or BINARY_WORDS, seed)
    accepted += sum(_try(target, mutator.next()) for _ in range(inputs))
    grown = _peak_mib() - before
    if grown > MEMORY_MIB_MAX:
        raise Finding(target.name, b"", MemoryError(f"the process grew by {grown} MiB"))
    return Outcome(inputs, accepted, grown)


def _try(target: Target, data: bytes) -> bool:
    try:
        with _limited():
            return target.check(data)
    except Exception as error:
        raise Finding(target.name, data, error) from error


@contextmanager
def _limited() -> Iterator[None]:
    def stop(_number: int, _frame: Any) -> None:
        raise TookTooLong(f"more than {INPUT_SECONDS_MAX} seconds of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, INPUT_SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
