# SPDX-License-Identifier: Apache-2.0
"""The transport `dry-run` in memory: hostile requests, crashes between two commits, its bounds, and states that cannot be restored."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from validator_simulators.settings import SimulationSettings

from tests.cli.stored_job import BATCH, write_store
from tests.unit.lanes.backend import Store
from tests.unit.lanes.chains import chain, config_of, inputs_of
from validator.ask import dry_run, state
from validator.ask.dry_run import Answerer
from validator.ask.dry_run_transport import DryRunPlugin, DryRunSettings, Service
from validator.ask.standings import CheckpointStandings
from validator.ask.state import restore
from validator.client import in_memory
from validator.client.backend import MemoryBackend
from validator.codec.codec import RecordUnreadable, shared_codec
from validator.codec.dry_runs import (
    DryRunAnswer,
    DryRunRequest,
    decode_answer,
    decode_request,
    encode_request,
    request_format,
)
from validator.codec.json_form import to_json
from validator.core.limits import DRY_RUN_REASON_CHARACTERS_MAX
from validator.errors import UserError
from validator.lanes.configured import lane_definition
from validator.lanes.parked import Fault, Parked
from validator.lanes.store import LaneCache, process_batch
from validator.plugin.registry import PluginError
from validator.testing.transport import MemoryTransport
from validator.topics import DRY_RUN_ANSWERS, DRY_RUN_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


LANE = "polkadot"
PARAS = [{"para_id": 2000, "balance": 10**12}, {"para_id": 2004, "balance": 10**12}]
CHAIN = {"host_configuration": {"preset": "polkadot-2023"}, "genesis_paras": PARAS}
GOOD = {"para_id": 2000, "hrmp_watermark": 0, "upward_messages": ["0102"]}
BAD = {"para_id": 2000, "hrmp_watermark": 9, "horizontal_messages": [{"recipient": 2004, "data": "00"}]}


def lanes() -> MemoryBackend:
    backend = in_memory({"chains": {LANE: CHAIN}})._backend
    assert isinstance(backend, MemoryBackend)
    return backend


def request(record: Any, correlation: bytes = b"a", lane: str = LANE, kind: str = "candidates") -> bytes:
    text = record if isinstance(record, str) else json.dumps(record)
    return encode_request(DryRunRequest(lane, correlation, kind, text))


def transport(config: dict[str, Any] | None = None) -> MemoryTransport:
    standings = lanes()
    return MemoryTransport(DryRunPlugin(lambda _: standings), config)


def answers(of: MemoryTransport) -> list[DryRunAnswer]:
    return [decode_answer(value) for topic, _, value in of.submitted if topic == DRY_RUN_ANSWERS]


def run(of: MemoryTransport, count: int) -> None:
    """Run the transport until it has written ``count`` more records."""
    of.run(submits_max=count, live=True)


HOSTILE = {
    "no record": (b"\0" * 40, "expected a record validator.DryRunRequest"),
    "empty": (b"", "expected a record validator.DryRunRequest"),
    "cut": (request(GOOD)[:-3], "validator.DryRunRequest"),
    "long correlation": (
        request_format().encode({"lane": LANE, "correlation": bytes(65), "kind": "candidates", "record": "{}"}),
        "correlation: expected 1 to 64 bytes, found 65",
    ),
    "unknown lane": (request(GOOD, lane="kusama"), "lane: expected polkadot, found 'kusama'"),
    "unknown kind": (request(GOOD, kind="blocks"), "kind: expected candidates"),
    "no JSON": (request("{"), "record at :1:2: not JSON"),
    "deep JSON": (request("[" * 100_000), "levels deep"),
    "twice": (request('{"para_id": 1, "para_id": 2}'), "expected each member once"),
    "no object": (request("[]"), "record: expected an object"),
    "wrong field": (request({**GOOD, "hrmp_watermark": -1}), "hrmp_watermark"),
    "another lane inside": (request({**GOOD, "lane": "kusama"}), "lane: expected 'polkadot', found 'kusama'"),
    "executed block": (request({**GOOD, "block": 0}), "block"),
    "very long text": (request({**GOOD, "x" * 5_000: 1}), "xxx..."),
}


def test_every_request_has_one_answer_which_says_why_it_was_refused() -> None:
    of = transport()
    for value, _ in HOSTILE.values():
        of.append(DRY_RUN_REQUESTS, b"", value)
    of.append(DRY_RUN_REQUESTS, b"", request(GOOD, b"good"))
    run(of, len(HOSTILE) + 1)
    *refused, good = answers(of)
    for (name, (_, words)), answer in zip(HOSTILE.items(), refused, strict=True):
        assert answer.refused is not None, name
        assert words in answer.refused, name
        assert len(answer.refused) <= DRY_RUN_REASON_CHARACTERS_MAX
        assert answer.verdicts == ()
    assert [answer.offset for answer in refused] == list(range(len(HOSTILE)))
    assert (good.correlation, good.refused, good.executed_block) == (b"good", None, 0)


def test_answer_holds_a_record_for_each_violation_and_is_keyed_by_the_correlation() -> None:
    of = transport()
    of.append(DRY_RUN_REQUESTS, b"", request(BAD, b"\x01" * 64))
    run(of, 1)
    ((topic, key, value),) = of.submitted
    answer = decode_answer(value)
    assert (topic, key, answer.correlation) == (DRY_RUN_ANSWERS, b"\x01" * 64, b"\x01" * 64)
    shown = [to_json("verdicts", each, shared_codec()) for each in answer.verdicts]
    assert [each["error"]["kind"] for each in shown] == ["HrmpWatermark/AheadRelayParent", "OutboundHrmp/NoSuchChannel"]
    assert {each["block"] for each in shown} == {1}
    assert answer.complete
    assert answer.headroom_after == ()
    assert to_json("headroom", answer.headroom[0])["para_id"] == 2000
    assert answer.state_root == lanes().of(LANE).standing.rules.state_root()


def test_accepted_request_does_not_change_what_the_next_one_meets() -> None:
    of = transport()
    for number in range(3):
        of.append(DRY_RUN_REQUESTS, b"", request(GOOD, b"%d" % number))
    run(of, 3)
    first, *others = (answer._replace(correlation=b"", offset=0) for answer in answers(of))
    assert to_json("verdicts", first.verdicts[0])["ok"]
    assert [first, first] == others


@pytest.mark.parametrize("dies_before", [True, False])
def test_each_request_is_answered_once_however_often_the_process_dies(dies_before: bool) -> None:
    """It dies at every other commit, before or after the commit takes effect, and the next process continues."""
    of = transport({"per_second": 3})
    requests = [request(GOOD if number % 3 else BAD, b"%d" % number) for number in range(20)]
    for value in requests:
        of.append(DRY_RUN_REQUESTS, b"", value)
    commits = 0

    class Killed(Exception):
        pass

    def die(records: list[Any], cursors: Any) -> None:
        nonlocal commits
        commits += 1
        if commits % 2 == 0:
            if not dies_before:  # Kafka has taken it, but the process does not live to know
                for record in records:
                    of.submitted.append(record)
                of.cursors |= cursors
            raise Killed

    of.on_commit = die
    while len(of.submitted) < len(requests):
        try:
            with of.open(submits_max=len(requests) - len(of.submitted), live=True) as context:
                settings = DryRunSettings(per_second=3)
                Service(context, Answerer(lanes()), settings, clock=iter(range(10**6)).__next__).run()
        except Killed:
            continue
    assert [answer.correlation for answer in answers(of)] == [decode_request(value).correlation for value in requests]


def test_requests_with_too_many_behind_them_are_refused_in_time_for_the_others() -> None:
    of = transport({"waiting_max": 2})
    for number in range(6):
        of.append(DRY_RUN_REQUESTS, b"", request(GOOD, b"%d" % number))
    run(of, 6)
    refused = [answer.refused for answer in answers(of)]
    assert refused[:3] == [
        f"too many requests: {behind} wait behind this one, expected at most 2; ask again later" for behind in (5, 4, 3)
    ]
    assert refused[3:] == [None, None, None]


def test_rate_is_kept_by_waiting_between_commits() -> None:
    of = transport()
    for number in range(25):
        of.append(DRY_RUN_REQUESTS, b"", request(BAD, b"%d" % number))
    now_s, commits = 0.0, []

    def pause(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    of.on_commit = lambda records, _: commits.append((now_s, len(records)))
    with of.open(submits_max=25, live=True) as context:
        settings = DryRunSettings(per_second=10)
        Service(context, Answerer(lanes()), settings, clock=lambda: now_s, pause=pause).run()
    assert commits == [(0.0, 10), (1.0, 10), (2.0, 5)]


def test_topic_that_was_made_again_is_read_from_its_beginning() -> None:
    of = transport()
    of.cursors["requests.0"] = b"50"
    of.append(DRY_RUN_REQUESTS, b"", request(GOOD))
    run(of, 1)
    assert [answer.offset for answer in answers(of)] == [0]


def test_bug_and_long_answer_are_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Answerer(lanes())
    monkeypatch.setattr(dry_run, "DRY_RUN_ANSWER_BYTES_MAX", 10)
    assert "expected at most 10" in str(decode_answer(asked.answer(request(GOOD), 0, 0)).refused)

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(dry_run, "ask", broken)
    assert decode_answer(asked.answer(request(GOOD), 0, 7)).refused == "a bug: ZeroDivisionError: by zero"


def test_only_the_first_violations_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "DRY_RUN_VERDICTS_MAX", 1)
    answer = decode_answer(Answerer(lanes()).answer(request(BAD), 0, 0))
    assert len(answer.verdicts) == 1
    assert not answer.complete


@pytest.mark.parametrize("key", ["per_second", "waiting_max", "refresh_seconds"])
def test_settings_have_ranges(key: str) -> None:
    with pytest.raises(PluginError, match=f"{key}: expected 1 to"):
        transport({key: 0})


def test_request_is_checked_before_it_is_sent() -> None:
    with pytest.raises(RecordUnreadable, match="lane: expected 1 to 64 characters, found 0"):
        request(GOOD, lane="")


class Checkpoint:
    """A job's checkpoint that grows in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **table: Any) -> None:
        of = chain(SimulationSettings(seed=31, blocks=30, lane=LANE))
        self.of = replace(of, table={**of.table, **table})
        self.config = config_of(self.of, job={"directory": str(folder / "job")})
        self.commits = folder / "job" / "checkpoint" / "commits"
        self.commits.mkdir(parents=True)
        self.reads = 0
        self.begin("one")
        monkeypatch.setattr(state, "read_checkpoint", self.read)

    def begin(self, checkpoint: str) -> None:
        """Begin again, with another checkpoint."""
        self.store, self.cache = Store(), LaneCache()
        (self.commits.parent / "metadata").write_text(json.dumps({"id": checkpoint}))

    def read(self, _: Path, output: Path, names: Sequence[str]) -> None:
        self.reads += 1
        write_store(output, self.store, {}, names)

    def execute(self, first: int, last: int, batch: int) -> None:
        attempt = self.store.attempt()
        items = inputs_of([each for each in self.of.records if first <= each.block <= last])
        list(process_batch(lane_definition(self.config, LANE), attempt, self.cache, [items]))
        self.store.commit(attempt)
        (self.commits / str(batch)).write_text("v1\n{}")


def test_newer_state_is_asked_once_the_job_has_committed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, now_s = Checkpoint(tmp_path, monkeypatch), 0.0
    standings = CheckpointStandings(kept.config, 2.0, lambda: now_s)
    with pytest.raises(UserError, match="not finished a batch yet"):
        standings.of(LANE)
    kept.execute(1, 10, BATCH)
    with pytest.raises(UserError, match="not finished a batch yet"):
        standings.of(LANE)  # it looks again only after a while
    now_s = 2.0
    asked = standings.of(LANE)
    assert (asked.batch, asked.standing.executed_block) == (BATCH, 10)
    root = asked.standing.rules.state_root()
    assert asked.standing.state_root == root
    kept.execute(11, 20, BATCH)  # the same file: nothing was committed yet that a look would find
    now_s = 4.0
    assert standings.of(LANE).standing is asked.standing
    assert kept.reads == 1
    standings.changed(LANE)
    again = standings.of(LANE)
    assert again.standing.rules is not asked.standing.rules
    assert again.standing.rules.state_root() == root
    with pytest.raises(UserError, match="lane: expected polkadot, found 'kusama'"):
        standings.of("kusama")
    assert kept.reads == 1


def test_state_of_another_checkpoint_is_asked_though_it_has_as_many_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, now_s = Checkpoint(tmp_path, monkeypatch), 0.0
    kept.execute(1, 10, BATCH)
    standings = CheckpointStandings(kept.config, 2.0, lambda: now_s)
    assert standings.of(LANE).standing.executed_block == 10
    kept.begin("another")
    kept.execute(1, 25, BATCH)
    now_s = 2.0
    assert standings.of(LANE).standing.executed_block == 25
    now_s = 4.0
    assert standings.of(LANE).standing.executed_block == 25
    assert kept.reads == 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (RuntimeError("it exited"), "it exited"),
        (KeyError("lane"), "KeyError: 'lane'"),
    ],
)
def test_checkpoint_that_cannot_be_read_is_read_again_only_after_a_while(
    error: Exception, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, now_s, reads = Checkpoint(tmp_path, monkeypatch), 0.0, 0

    def fails(*_: Any) -> None:
        nonlocal reads
        reads += 1
        raise error

    kept.execute(1, 10, BATCH)
    monkeypatch.setattr(state, "read_checkpoint", fails)
    asked = Answerer(CheckpointStandings(kept.config, 2.0, lambda: now_s))
    refused = {decode_answer(asked.answer(request(GOOD), 0, 0)).refused for _ in range(5)}
    assert refused == {f"the checkpoint cannot be read: {words}"}
    assert reads == 1
    monkeypatch.setattr(state, "read_checkpoint", kept.read)
    now_s = 2.0
    assert decode_answer(asked.answer(request(GOOD), 0, 0)).executed_block == 10


def test_refused_record_of_a_block_with_other_rules_changes_nothing_that_another_request_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = [
        {"from_block": 100, "features": ["versioned_notifications", "no_ttl", "dmq_length_limit", "message_queue"]}
    ]
    kept = Checkpoint(tmp_path, monkeypatch, rules=later)
    kept.execute(1, 20, BATCH)
    standings = CheckpointStandings(kept.config, 2.0, lambda: 0.0)
    asked = Answerer(standings)
    root = standings.of(LANE).standing.rules.state_root()
    bad = {"para_id": 2000, "hrmp_watermark": 10**6}
    for block in (21, 100, 21):
        answer = decode_answer(asked.answer(request({**bad, "block": block}), 0, 0))
        assert not to_json("verdicts", answer.verdicts[0], shared_codec())["ok"]
        assert standings.of(LANE).standing.rules.state_root() == root


def test_stop_waits_for_one_answer_not_for_all_that_were_taken() -> None:
    of = transport()
    requests = [request(GOOD, b"%d" % number) for number in range(10)]
    for value in requests:
        of.append(DRY_RUN_REQUESTS, b"", value)
    asked = Answerer(lanes())
    with of.open(live=True) as context:

        class Stops(Answerer):
            """Must stop while it answers the fourth request."""

            def answer(
                self, value: bytes, partition: int, offset: int, *, waiting: int = 0, waiting_max: int = 0
            ) -> bytes:
                if offset == 3:
                    context.stop()
                return asked.answer(value, partition, offset, waiting=waiting, waiting_max=waiting_max)

        Service(context, Stops(lanes()), DryRunSettings()).run()
    assert [answer.offset for answer in answers(of)] == [0, 1, 2, 3]
    run(of, 6)
    assert [answer.offset for answer in answers(of)] == list(range(10))


def stored(head: bytes) -> Any:
    return SimpleNamespace(lanes=["polkadot"], batch=0, load=lambda _: SimpleNamespace(head=head, slots={}))


def test_lane_that_was_parked_in_its_first_batch_has_no_state() -> None:
    parked = Parked(Fault.HANDLER, "lane polkadot: a handler hung", None).encode(None)
    with pytest.raises(
        UserError, match="no state yet: it was parked in its first batch: lane polkadot: a handler hung"
    ):
        restore(cast("Any", stored(parked)), "polkadot")


def test_head_that_is_damaged_is_named() -> None:
    with pytest.raises(UserError, match="its state in the checkpoint cannot be used: state head version 7, expected 1"):
        restore(stored(b"\x07"), "polkadot")
