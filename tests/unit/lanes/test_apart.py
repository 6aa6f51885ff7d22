# SPDX-License-Identifier: Apache-2.0
"""A lane with handlers executes in a separate process: what a handler does there costs its own lane, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.distributions import files_of, on_path, packed
from tests.hostile import HOSTILE, block_records
from tests.unit.lanes.backend import Attempt, Store
from tests.unit.lanes.chains import Record, inputs_of
from tests.unit.lanes.running import Log, chunks_of_items
from tests.unit.lanes.test_confine import can_forbid, can_restrict_files
from validator.codec.json_form import to_json
from validator.config import Config
from validator.core.inputs import RecordKind
from validator.lanes.apart import batch, host
from validator.lanes.apart.batch import ApartBatch
from validator.lanes.apart.host import BESIDES_BYTES, LaneProcesses, LaneProcessFailed
from validator.lanes.apart.process import Start
from validator.lanes.arrived import arrived
from validator.lanes.auditing import AuditSettings, fault_key
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.lanes.parked import Fault, point_of, stored_parts
from validator.lanes.parking import BatchRequest, LaneBatch, Suspect, with_handlers
from validator.lanes.sink import TransactionalSink
from validator.lanes.store import LaneCache

LANE = "apart"
SECRET = "correct horse battery staple"
MIB = 1024 * 1024

KINDS = (
    HOSTILE
    + """
def ends(context, payload):
    os._exit(0)

def speaks(context, payload):
    for number in range(3, 64):
        try:
            os.write(number, b"nonsense" * 64)
        except OSError:
            pass

def looks_around(context, payload):
    found = []
    for path in PATHS:
        try:
            found.append(open(path, "rb").read().decode("utf-8", "replace"))
        except OSError as error:
            found.append(type(error).__name__)
    found.append(" ".join(sorted(os.environ.values())))
    context.emit("found", "|".join(found).encode()[:900])

def connects(context, payload):
    socket.socket()

def signals(context, payload):
    os.kill(os.getppid(), 0)

def patches(context, payload):
    import validator.core.outcomes, validator.core.execute
    genuine = validator.core.execute.Receipt
    validator.core.execute.Receipt = lambda **fields: genuine(**{**fields, "accepted": fields["accepted"] + 1})

def patches_and_hides_it(context, payload):
    patches(context, payload)
    import validator.lanes.auditing
    validator.lanes.auditing.Auditor._fault = lambda *_: None

def differs(context, payload):
    context.emit("order", "".join({"a", "b", "c", "d", "e", "f", "g", "h"}).encode())

def deepens(context, payload):
    import sys
    sys.setrecursionlimit(10**9)

def interrupts(context, payload):
    raise KeyboardInterrupt

def closes(context, payload):
    os.closerange(3, 1000)

def does_not_block(context, payload):
    for number in range(3, 64):
        try:
            os.set_blocking(number, False)
        except OSError:
            pass

def breaks_the_core(context, payload):
    import validator.core.execute
    validator.core.execute.Receipt = None

def shares(context, payload):
    import mmap
    page = mmap.mmap(-1, 128 * 1024 * 1024)
    for at in range(0, len(page), 4096):
        page[at] = 1
    SHARED.append(page)

def daemonises(context, payload):
    libc = ctypes.PyDLL(None)
    if libc.fork() == 0:
        os.setsid()
        if libc.fork():
            libc._exit(0)
        while True:
            time.sleep(1)
    time.sleep(0.2)

def stops(context, payload):
    os.kill(os.getpid(), signal.SIGSTOP)

SHARED = []
KINDS = [(bytes([at]), each.__name__.replace("_", "-"), each) for at, each in enumerate([
    counts, deadlocks, blocks_signals, forks, leaves_a_thread, crashes, ends, speaks, looks_around,
    patches, patches_and_hides_it, differs, deepens, interrupts, closes, does_not_block, breaks_the_core, shares, daemonises, stops,
    connects, signals,
])]
"""
)
NAMES = (
    "counts", "deadlocks", "blocks-signals", "forks", "leaves-a-thread", "crashes", "ends", "speaks",
    "looks-around", "patches", "patches-and-hides-it", "differs", "deepens", "interrupts", "closes", "does-not-block",
    "breaks-the-core", "shares", "daemonises", "stops", "connects", "signals",
)  # fmt: skip
FATAL_AT = 6


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("apart")
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    paths = [str(secret), f"/proc/{os.getpid()}/environ", f"/proc/{os.getppid()}/environ"]
    known = f"PATHS = {paths!r}\n"
    (folder / "archives").mkdir()
    archive = packed(folder / "archives" / "hostile.zip", files_of("hostile", "1.0.0", known + KINDS))
    with on_path(archive):
        yield secret


def definition(lane: str = LANE, seconds_max: int = 60) -> LaneDefinition:
    chain = {
        "host_configuration": {"preset": "polkadot-2023"},
        "genesis_paras": [{"para_id": 2000}, {"para_id": 2001}],
        "handlers": [{"name": "hostile", "version": "1.0.0"}],
    }
    table = {"directory": "nowhere", "handler_seconds_max": seconds_max}
    return lane_definition(Config.model_validate({"chains": {lane: chain}, "job": table}), lane)


def records(*kinds: str, names: Sequence[str] = NAMES, lane: str = LANE, blocks: int = 10) -> list[Record]:
    """Return blocks with two counted messages each; one block has further messages between them."""
    made = []
    for block in range(1, blocks + 1):
        inner = kinds if block == FATAL_AT else ()
        made += block_records(lane, block, [bytes([names.index(kind), block]) for kind in ("counts", *inner, "counts")])
    return made


@dataclass
class Apart:
    """One lane with handlers, its store and its log, executed as a worker does."""

    processes: LaneProcesses
    definition: LaneDefinition
    audit: AuditSettings | None = None
    store: Store = field(default_factory=Store)
    log: Log = field(default_factory=Log)
    suspects: dict[str, Suspect] = field(default_factory=dict)
    attempt: Attempt = field(default_factory=Attempt)

    def run(self, items: list[Any]) -> None:
        attempt = self.attempt = self.store.attempt()
        lane = self.definition.name
        services = SimpleNamespace(held_inputs=None, confirm=lambda _: None, recovered=lambda _: None)
        request = BatchRequest(
            self.definition, attempt.load_head(), 64 * MIB, dict(self.suspects), checkpoint="here", audit=self.audit
        )
        batch = ApartBatch(self.processes, services, attempt, request, chunks_of_items(items, 5), 1024 * MIB)
        sink = TransactionalSink(lambda _: self.log)
        sink.begin(lane, point_of(attempt.head))
        with batch:
            sink.write(lane, list(batch.run()))
            batch.written(sink.commit(lane, batch.consumed))
        self.store.commit(attempt)

    def fault(self) -> Fault | None:
        parked = stored_parts(self.store.committed.head)[0]
        return None if parked is None else parked.fault


def here(of: LaneDefinition, batches: list[list[Any]]) -> tuple[Store, Log]:
    """Execute batches in this process."""
    store, log, cache = Store(), Log(), LaneCache()
    for items in batches:
        attempt = store.attempt()
        batch = LaneBatch(
            of, attempt, cache, arrived(chunks_of_items(items, 5), 64 * MIB).items, None, checkpoint="here"
        )  # type: ignore[arg-type]
        sink = TransactionalSink(lambda _: log)
        sink.write(of.name, list(batch.run()))
        sink.commit(of.name, batch.consumed)
        store.commit(attempt)
    return store, log


def test_a_process_gives_what_this_one_does(processes: LaneProcesses) -> None:
    items = inputs_of(records())
    batches = [items[:7], items[7:12], items[12:]]
    lane = Apart(processes, definition())
    for each in batches:
        lane.run(each)
    store, log = here(lane.definition, batches)
    assert lane.log.records == log.records
    assert (lane.store.committed.head, lane.store.committed.journal) == (store.committed.head, store.committed.journal)
    assert lane.log.last == log.last


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("deadlocks", "handler hostile@1.0.0 (deadlocks): it did not return within"),
        ("blocks-signals", "handler hostile@1.0.0 (blocks-signals): it did not return within"),
        ("stops", "handler hostile@1.0.0 (stops): it did not return within"),
        ("leaves-a-thread", "one of its handlers (hostile@1.0.0) left 1 thread behind, in block 10 at the latest"),
        ("shares", "its process occupies "),
        ("speaks", "sent what no lane sends"),
    ],
)
def test_what_misbehaves_is_named_and_not_repeated(
    processes: LaneProcesses, monkeypatch: pytest.MonkeyPatch, kind: str, said: str
) -> None:
    misbehaves(processes, monkeypatch, kind, said)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("forks", "one of its handlers (hostile@1.0.0) left 1 process behind, in block "),
        ("daemonises", "one of its handlers (hostile@1.0.0) left 2 processes behind"),  # and the one between them
    ],
)
def test_processes_that_a_system_lets_a_handler_start_are_ended_and_named(
    processes: LaneProcesses, monkeypatch: pytest.MonkeyPatch, kind: str, said: str
) -> None:
    monkeypatch.setattr(batch, "Start", partial(Start, repeats=True))
    misbehaves(processes, monkeypatch, kind, said)


@pytest.mark.skipif(not can_forbid(), reason="this system has no seccomp, or is another machine")
@pytest.mark.parametrize("kind", ["forks", "daemonises", "connects", "signals"])
def test_system_call_that_reaches_beyond_the_process_ends_it(
    processes: LaneProcesses, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    said = f"its process made a system call that no handler may make in handler hostile@1.0.0 ({kind}): File "
    misbehaves(processes, monkeypatch, kind, said)


def misbehaves(processes: LaneProcesses, monkeypatch: pytest.MonkeyPatch, kind: str, said: str) -> None:
    monkeypatch.setattr(host, "LAST_RESORT_S", 1.0)
    monkeypatch.setattr(host, "BESIDES_BYTES", BESIDES_BYTES if kind != "shares" else 100 * MIB - 1024 * MIB)
    lane = Apart(processes, definition(seconds_max=1))
    with pytest.raises(LaneProcessFailed) as failed:
        lane.run(inputs_of(records(kind)))
    assert said in str(failed.value)
    assert failed.value.fault is Fault.HANDLER
    assert not {call for call in lane.attempt.calls if not call.startswith("load")}, (
        "the batch is executed again on this state"
    )


@pytest.mark.parametrize(("kind", "how"), [("crashes", "SIGSEGV"), ("ends", "exit code 0")])
def test_a_process_that_dies_says_where(processes: LaneProcesses, kind: str, how: str) -> None:
    lane, items = Apart(processes, definition()), inputs_of(records(kind))
    with pytest.raises(LaneProcessFailed) as failed:
        lane.run(items)
    assert how in str(failed.value)
    assert f"in handler hostile@1.0.0 ({kind})" in str(failed.value)
    assert failed.value.fault is None
    assert failed.value.place == (FATAL_AT, 2000)
    lane.suspects = {LANE: Suspect(point_of(None), "it died", place=failed.value.place)}
    lane.run(items)
    parked = stored_parts(lane.store.committed.head)[0]
    assert parked is not None
    candidate = next(each for each in items if each.block == FATAL_AT and each.kind is RecordKind.CANDIDATE)
    source = ":".join(map(str, candidate.source))
    assert parked.reason == f"it died; block {FATAL_AT}, para 2000, whose candidate in it is {source}"


@pytest.mark.parametrize(
    ("kind", "fault", "said"),
    [
        (
            "deepens",
            Fault.HANDLER,
            "handler hostile@1.0.0 (deepens): it changed the recursion limit; block 6, para 2000, whose",
        ),
        (
            "interrupts",
            Fault.HANDLER,
            "handler hostile@1.0.0 (interrupts): KeyboardInterrupt raised, at ",
        ),
        ("breaks-the-core", Fault.BUG, "has the traceback; its handlers are hostile@1.0.0"),
    ],
)
def test_what_a_handler_does_to_its_own_process_parks_the_lane_with_its_name(
    processes: LaneProcesses, kind: str, fault: Fault, said: str
) -> None:
    lane = Apart(processes, definition())
    lane.run(inputs_of(records(kind)))
    parked = stored_parts(lane.store.committed.head)[0]
    assert parked is not None
    assert (parked.fault, parked.since_block) == (fault, FATAL_AT - 1)
    assert said in parked.reason


@pytest.mark.parametrize("kind", ["closes", "does-not-block", "speaks"])
def test_reason_of_a_connection_that_fails_has_the_handlers(processes: LaneProcesses, kind: str) -> None:
    lane = Apart(processes, definition())
    try:
        lane.run(inputs_of(records(kind, blocks=200)))
    except LaneProcessFailed as failed:
        reason = with_handlers(f"lane {LANE}: {failed}", lane.definition)
        assert "hostile@1.0.0" in reason
        assert with_handlers(reason, lane.definition) == reason
    else:
        assert kind == "does-not-block", "it does no harm unless the connection is full"


@pytest.mark.skipif(not can_restrict_files(), reason="this system has no Landlock")
def test_no_secret_is_in_reach(processes: LaneProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SASL_PASSWORD", SECRET)
    lane = Apart(processes, definition())
    lane.run(inputs_of(records("looks-around")))
    raw = b"".join(each.value for each in lane.log.records)
    assert b"PermissionError|" in raw
    assert SECRET.encode() not in raw


def test_the_audit_executes_in_a_process_that_no_handler_has_touched(processes: LaneProcesses) -> None:
    lane = Apart(processes, definition(), AuditSettings(1_000_000))
    lane.run(inputs_of(records("patches")))
    (fault,) = [to_json("lanes", each.value) for each in lane.log.records if each.key == fault_key(LANE)]
    assert fault["block"] == 10
    assert "of topic receipts, differs in a second execution" in fault["detail"]


def test_a_lane_cannot_keep_a_fault_to_itself(processes: LaneProcesses) -> None:
    lane = Apart(processes, definition(), AuditSettings(1_000_000))
    with pytest.raises(LaneProcessFailed, match=f"audit of block {FATAL_AT}") as failed:
        lane.run(inputs_of(records("patches-and-hides-it")))
    assert failed.value.fault is Fault.AUDIT


def test_the_order_of_a_set_is_found(processes: LaneProcesses) -> None:
    lane = Apart(processes, definition(), AuditSettings(1_000_000, parks=True))
    lane.run(inputs_of(records("differs")))
    parked = stored_parts(lane.store.committed.head)[0]
    assert parked is not None
    assert parked.fault is Fault.AUDIT
    assert f"audit of block {FATAL_AT}: execution:" in parked.reason
    assert "its handlers are hostile@1.0.0" in parked.reason
