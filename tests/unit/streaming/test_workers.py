# SPDX-License-Identifier: Apache-2.0
"""A worker with other plugins than its driver stops with one line; each definition is checked once."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from streaming import lane_operator, workers
from streaming.batch_watch import Beat
from streaming.reasons import executed_lane
from streaming.workers import check_plugins
from tests.distributions import files_of, on_path, written
from tests.unit.lanes.batches import CHAIN
from tests.unit.lanes.chains import definition_of
from validator.codec.encode import BlockOutput
from validator.errors import UserError
from validator.lanes import garbage
from validator.lanes.definition import LaneDefinition, job_codec

NOTHING = 'KINDS = [(b"\\x01", "nothing", lambda context, payload: None)]'
OTHER = NOTHING.replace("x01", "x02")


@pytest.fixture
def of(tmp_path: Path) -> LaneDefinition:
    """Return the definition that a driver with plugin quiet 1.0.0 makes."""
    written(tmp_path / "driver", files_of("quiet", "1.0.0", NOTHING))
    with on_path(tmp_path / "driver"):
        return definition_of(CHAIN, handlers=[{"name": "quiet"}], ump_weights={}, ump_failing_messages=[])


@pytest.fixture(autouse=True)
def _no_definition_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_checked", {})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {},
            (
                "the driver has router@{router}, quiet@1.0.0, this worker does not: quiet: "
                "no installed plugin of group validator.handlers has this name: install it; installed are: "
            ),
        ),
        (
            files_of("quiet", "1.1.0", NOTHING),
            (
                "the driver has router@{router}, quiet@1.0.0, this worker does not: quiet@1.0.0: "
                "this version is not installed, found 1.1.0: install it"
            ),
        ),
        (
            files_of("quiet", "1.0.0", "raise OSError('no\\n library')"),
            "the driver has router@{router}, quiet@1.0.0, this worker does not: quiet@1.0.0 (throwaway_quiet_1_0_0 1.0.0, ",
        ),
        (
            files_of("quiet", "1.0.0", OTHER),
            (
                "this worker's plugins differ from the driver's, from block 0 on: "
                "handlers.quiet.kinds.nothing.prefix is '02' here and '01' there"
            ),
        ),
    ],
    ids=["none", "another version", "import fails", "another plugin of the same name and version"],
)
def test_plugin_difference_is_reported_in_one_line(
    files: dict[str, str], expected: str, of: LaneDefinition, tmp_path: Path
) -> None:
    with on_path(written(tmp_path / "worker", files)), pytest.raises(UserError) as refused:
        of.check()
    router = of.epochs[0].plugins()[0].partition("@")[2]
    assert str(refused.value).startswith(f"lane {CHAIN.lane}: {expected.format(router=router)}")
    assert "\n" not in str(refused.value)


def test_each_definition_is_checked_once(of: LaneDefinition, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(LaneDefinition, "check", lambda self: checked.append(self.name))
    bare = replace(of, plan=replace(of.plan, handlers=()))
    other = replace(bare, name="other")
    check_plugins([bare, other])
    check_plugins([bare, other])
    assert checked == [of.name, "other"]
    check_plugins([replace(bare, plan=replace(bare.plan, configuration="changed"))])
    assert checked == [of.name, "other", of.name]


def test_failed_check_is_repeated(of: LaneDefinition, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(of, plan=replace(of.plan, handlers=()))
    answers = iter((UserError("no"), UserError("no"), None))

    def check(_: LaneDefinition) -> None:
        if (answer := next(answers)) is not None:
            raise answer

    monkeypatch.setattr(LaneDefinition, "check", check)
    for _ in range(2):
        with pytest.raises(UserError):
            check_plugins([bare])
    check_plugins([bare])


def test_handlers_are_not_imported_by_a_worker(of: LaneDefinition) -> None:
    """They would be where its secrets are: the lane's own process imports them, and says what is wrong with them."""
    check_plugins([of])  # they are not installed here
    assert job_codec([of]).knowing({}) is not None
    assert of.records is not None
    with pytest.raises(UserError):
        of.check()


def test_last_words_name_a_lane_only_while_it_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tmp_path / "words"
    with words.open("a", encoding="utf-8") as file:
        monkeypatch.setattr(workers, "_last_words", file)
        outputs = lane_operator._seen(Beat(str(tmp_path / "progress")), iter([BlockOutput(1, []), BlockOutput(2, [])]))
        workers.note_point("alpha", "p")
        next(outputs)
        assert executed_lane(words.read_text()) == ("alpha", "p")
        assert len(list(outputs)) == 1
        assert words.read_text() == "", "a worker that dies after its last lane says nothing of it"
        workers.note_point("beta", "q")
        assert executed_lane(words.read_text()) == ("beta", "q")


# --- garbage collector ---


def test_garbage_among_what_was_frozen_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first objects of a task are frozen with the lanes, and may be cyclic garbage after it."""

    class Closure:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(workers, "_tuned", True)
    monkeypatch.setattr(garbage, "_batches", 0)
    monkeypatch.setattr(garbage, "BATCHES_MAX", 4)
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    left: list[weakref.ref[Closure]] = []
    try:
        for task in range(1, 9):
            closure = Closure()
            left.append(weakref.ref(closure))
            workers.tune_garbage_collector()
            del closure
            gc.collect()  # as Spark's worker does after each task
            assert sum(each() is not None for each in left) == task % 4 + (task >= 4)
    finally:
        gc.unfreeze()


def test_worker_of_another_query_gets_its_limit() -> None:
    """One that kept the limit of a query with fewer lanes could not start the threads of its Kafka clients."""
    code = (
        "import resource; from streaming.workers import WRITER_BYTES, bound_worker\n"
        "for memory, lanes in ((2**30, 1), (2**30, 4), (2**30, 4), (2**29, 1)):\n"
        "    bound_worker(memory, lanes)\n"
        "    print(resource.getrlimit(resource.RLIMIT_DATA)[0] - lanes * WRITER_BYTES)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [int(each) for each in done.stdout.split()] == [2**30, 2**30, 2**30, 2**29]
