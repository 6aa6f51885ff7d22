# SPDX-License-Identifier: Apache-2.0
"""How a worker hands a lane's output to its sink: in runs, and to the same sink until it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from streaming import transactions as sink_module
from streaming.transactions import RUN_BYTES, KafkaOutput, opened
from streaming.transactions import write_batch as write_to
from validator.codec.encode import BlockOutput, OutputRecord
from validator.lanes.sink import TransactionalSink

LANE = "polkadot"


def write_batch(output: Any, lane: str, outputs: Iterable[BlockOutput], consumed: Callable[[], Any]) -> None:
    with opened(output) as sink:
        write_to(sink, lane, outputs, consumed)


class Opened:
    """An output whose sinks keep what they are given; the first ``failing`` of them raise at the commit."""

    def __init__(self, failing: int = 0) -> None:
        self.failing = failing
        self.sinks: list[Kept] = []

    def open(self) -> Kept:
        self.sinks.append(Kept(fails=len(self.sinks) < self.failing))
        return self.sinks[-1]


class Kept:
    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.calls: list[Any] = []

    def write(self, lane: str, output: list[BlockOutput]) -> None:
        self.calls.append((lane, [each.block for each in output]))

    def commit(self, lane: str, consumed: Any) -> dict[str, int]:
        if self.fails:
            raise OSError("gone")
        self.calls.append((lane, consumed))
        return {}


@pytest.fixture(autouse=True)
def no_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "_SINKS", {})


def blocks(*sizes: int) -> Iterator[BlockOutput]:
    """Yield blocks of two records each, with the given number of bytes together."""
    for number, size in enumerate(sizes):
        yield BlockOutput(
            number, [OutputRecord("verdicts", b"k", bytes(part)) for part in (size // 2, size - size // 2)]
        )


def test_output_is_handed_over_in_runs_of_a_mebibyte() -> None:
    output = Opened()
    write_batch(output, LANE, blocks(RUN_BYTES - 1, 1, RUN_BYTES - 1, 7, 0), lambda: {("t", 0): 9})
    assert output.sinks[0].calls == [(LANE, [0, 1]), (LANE, [2, 3]), (LANE, [4]), (LANE, {("t", 0): 9})]


def test_nothing_is_handed_over_before_a_run_is_full() -> None:
    output, taken = Opened(), []

    def counted() -> Iterator[BlockOutput]:
        for each in blocks(RUN_BYTES - 1, 1, 5):
            taken.append([len(sink.calls) for sink in output.sinks])
            yield each

    write_batch(output, LANE, counted(), dict)
    assert taken == [[0], [0], [1]]


def test_batch_without_output_is_committed_with_what_it_took() -> None:
    output = Opened()
    write_batch(output, LANE, iter(()), lambda: {("t", 0): 1})
    assert output.sinks[0].calls == [(LANE, {("t", 0): 1})]


def test_what_is_consumed_is_asked_after_the_last_output() -> None:
    output, consumed = Opened(), dict[tuple[str, int], int]()

    def late() -> Iterator[BlockOutput]:
        yield from blocks(1)
        consumed["t", 0] = 4

    write_batch(output, LANE, late(), lambda: consumed)
    assert output.sinks[0].calls[-1] == (LANE, {("t", 0): 4})


def test_sink_lives_until_it_fails() -> None:
    output = Opened(failing=1)
    with pytest.raises(OSError, match="gone"):
        write_batch(output, LANE, blocks(1), dict)
    for _ in range(2):
        write_batch(output, LANE, blocks(1), dict)
    assert len(output.sinks) == 2
    other = Opened()
    write_batch(other, LANE, blocks(1), dict)
    assert len(other.sinks) == 1
    assert len(output.sinks[1].calls) == 4


def test_sink_that_fails_while_it_is_used_is_not_the_next_batchs() -> None:
    output = Opened()

    def fails() -> Iterator[BlockOutput]:
        yield from blocks(1)
        raise KeyError

    write_batch(output, LANE, blocks(1), dict)
    with pytest.raises(KeyError):
        write_batch(output, LANE, fails(), dict)
    write_batch(output, LANE, blocks(1), dict)
    assert len(output.sinks) == 2


def test_outputs_of_equal_configurations_are_one() -> None:
    made = [
        KafkaOutput.of(TransactionalSink, dict(pairs), "p.", "job-1")
        for pairs in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    ]
    assert made[0] == made[1]
    assert hash(made[0]) == hash(made[1])
    assert made[0] != KafkaOutput.of(TransactionalSink, {"a": 1, "b": 2}, "p.", "job-2")


def test_outputs_that_frame_otherwise_are_others() -> None:
    frames = {("verdicts", b"\xc3\x01abcdefgh"): b"\0\0\0\0\5", ("lanes", b"\xc3\x01abcdefgh"): b"\0\0\0\0\6"}
    made = [
        KafkaOutput.of(TransactionalSink, {}, "p.", "job-1", dict(pairs))
        for pairs in (frames.items(), reversed(frames.items()), [])
    ]
    assert made[0] == made[1] != made[2]
    assert hash(made[0]) == hash(made[1])
    assert dict(made[0].frames) == frames
