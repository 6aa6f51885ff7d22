# SPDX-License-Identifier: Apache-2.0
"""From a node to verdicts: recorded blocks of Polkadot over JSON-RPC, the follower, Kafka, Spark, and the chain as the judge.

Four lanes follow four runs in one job. `run` has the long recorded run, or the four blocks that are shipped. `proven` has three recorded
blocks, of which one comes with a snapshot of storage that is proven against its state root. `paged` is made up: an upgrade in its middle
moves downward queues into pages, over several blocks. So is `late`: channels change without an event.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from validator_relay_chain import keys
from validator_relay_chain.block import ChainBlock
from validator_relay_chain.header import to_hex
from validator_relay_chain.metadata import MetadataCache, Runtime
from validator_relay_chain.oracle import records
from validator_relay_chain.pool import Clock, NodePool
from validator_relay_chain.prepare import configuration, prepare
from validator_relay_chain.source import Chain
from validator_relay_chain.storage import decode_channel
from validator_simulators.relay_chain import MockNode, Recording
from validator_simulators.relay_chain.made import decoded as decoded_block
from validator_simulators.relay_chain.made import make_up_storage
from validator_simulators.relay_chain.recording import SHIPPED

from tests.realdata.recorded import DATA
from tests.streaming.harness import Stream, consume, decoded
from validator.config import Config
from validator.errors import LeaseLost
from validator.lanes.configured import lane_definition
from validator.transports.runner import TransportGroup, choose_transport, create_topics_of_jobs, run_transport

RECORDED = DATA / "rpc" / "polkadot"
PLUGIN_TESTS = Path(__file__).resolve().parents[2] / "plugins" / "relay-chain" / "tests"
SPEC = 9430
JOINED, SNAPSHOT = 17_773_280, 17_773_281


class Followed(NamedTuple):
    """A recorded run, the block after which a lane joins it, and its runtime."""

    recording: Recording
    runtime: Runtime
    joined: int

    @property
    def last(self) -> int:
        return self.recording.last

    def blocks(self) -> Iterator[ChainBlock]:
        for number in range(self.joined + 1, self.last + 1):
            yield decoded_block(self.recording, self.runtime, number)


def runtime_of(recording: Recording) -> Runtime:
    metadata = recording.metadata_of(SPEC)
    assert metadata is not None
    return Runtime("polkadot", SPEC, metadata)


def runs() -> dict[str, Followed]:
    sys.path.insert(0, str(PLUGIN_TESTS))
    import paged_world
    import relay_world

    shipped = Recording.load(SHIPPED)
    paged = Followed(paged_world.paged_chain().recording, runtime_of(shipped), paged_world.FIRST + 1)
    late = Followed(relay_world.late_chain().recording, runtime_of(shipped), relay_world.FIRST + 1)
    if not RECORDED.exists():
        return {"run": Followed(shipped, runtime_of(shipped), shipped.first), "paged": paged, "late": late}
    import make_shipped

    long = make_shipped.seeded(Recording.load(RECORDED, make_shipped.RUN))
    proven = Recording.load(RECORDED, "17773280-17773282.jsonl.gz")
    runtime = runtime_of(proven)
    state = make_shipped.start_state(proven, SNAPSHOT - 2)
    state.downward.clear()  # the message that the other run lacks
    state.downward_heads.pop(make_shipped.UNRECORDED_DOWNWARD[0])
    make_up_storage(proven, runtime, JOINED, state)
    return {
        "run": Followed(long, runtime_of(long), make_shipped.JOINED),
        "proven": Followed(proven, runtime, JOINED),
        "paged": paged,
        "late": late,
    }


def tables(name: str, run: Followed, url: str, folder: Path) -> dict[str, Any]:
    """Return the configuration of a lane, made as `validator follow` makes it."""
    pool = NodePool([url], Clock())
    try:
        chain = Chain(pool, MetadataCache(folder / "metadata"))
        prepared = prepare(chain, name, folder, from_block=run.joined + 1, to_block=run.last)
    finally:
        pool.close()
    made = configuration(prepared, [url], str(folder), run.last)
    made["transports"]["relay-chain"]["chains"][name]["compare_every_blocks"] = 1
    return made


def merged(made: list[dict[str, Any]], **more: Any) -> Config:
    found: dict[str, Any] = {"chains": {}, "transports": {"relay-chain": {"chains": {}}}, **more}
    for each in made:
        found["chains"] |= each["chains"]
        found["transports"]["relay-chain"]["chains"] |= each["transports"]["relay-chain"]["chains"]
    found["job"] = {"headroom_interval_blocks": 1}
    return Config.model_validate(found)


@contextmanager
def transport(config: Config, name: str) -> Iterator[threading.Event]:
    """Run a transport until the block is left; the event says that it has ended by itself."""
    chosen = choose_transport(config, name)
    create_topics_of_jobs(config, chosen)
    stop, ended, failed = threading.Event(), threading.Event(), list[BaseException]()

    def run() -> None:
        group = TransportGroup(config.kafka, config.topics.prefix, chosen.name)
        try:
            while True:
                try:
                    run_transport(chosen, group, stop, lambda _: None, lambda _: None)
                    return
                except LeaseLost:  # on a machine too busy for heartbeats; the program begins again, too
                    pass
        except BaseException as error:  # noqa: BLE001 - raised in the test
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name=name)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def last_of(running: Stream, topic: str) -> dict[str, dict[str, Any]]:
    """Return the last record of each lane."""
    found = consume(running.kafka, running.prefix, [topic])[topic]
    return {key.decode(): records.decode(topic, value) for key, value in found}


@pytest.mark.broker
def test_recorded_runs_reach_verdicts_and_the_chain_agrees(stream: Callable[..., Stream], tmp_path: Path) -> None:
    followed = runs()
    with ExitStack() as stack:
        made = []
        for name, run in followed.items():
            node = stack.enter_context(MockNode(run.recording, pace_s=0.01, step=3, head=run.joined + 1))
            made.append(tables(name, run, node.url, tmp_path / name))
            node.finalise(run.last)
        running = stream({name: lane_definition(merged(made), name) for name in followed})
        config = merged(made, kafka=dict(running.kafka), topics={"prefix": running.prefix})
        running.start()
        with transport(config, "relay-chain.judge"), transport(config, "relay-chain") as ended:
            running.wait_for(ended.is_set, "both runs are followed")

            def judged() -> bool:
                agreed = last_of(running, records.AGREEMENT)
                return {name: agreed.get(name, {}).get("block") for name in followed} == {
                    name: run.last for name, run in followed.items()
                }

            running.wait_for(judged, "every block is compared with the chain")
        running.stop()

    outputs = running.outputs()
    verdicts = decoded(outputs, "verdicts")
    assert decoded(outputs, "dead-letters") == []
    assert [each for each in verdicts if not each["ok"]] == []
    agreement = last_of(running, records.AGREEMENT)
    for name, run in followed.items():
        of_lane = [each for each in verdicts if each["lane"] == name and each["block"] > run.joined]
        check_candidates(run, of_lane)
        check_inclusions(run, of_lane)
        found = agreement[name]
        late = {"channels-without-event": 3} if name == "late" else {}
        assert (found["disagreements"], found["skipped"], found["last_ours"]) == (late, 0, None)
        assert found["blocks"] == run.last - run.joined + 1
        assert found["heads"] > 40
        assert found["counters"] > 40
    if "proven" in followed:
        check_snapshot(running, followed["proven"])
    check_late(running)


def check_late(running: Stream) -> None:
    """The channels without an event are all that lane and chain disagree about, each once."""
    import relay_world

    said = [
        records.decode(records.DISAGREEMENTS, value)
        for _, value in consume(running.kafka, running.prefix, [records.DISAGREEMENTS])[records.DISAGREEMENTS]
    ]
    found = [(each["lane"], each["para_id"], each["recipient"], each["chain_says"]) for each in said]
    expected = [("late", *ends, "opened" if opened else "closed") for *ends, opened in relay_world.LATE]
    assert sorted(found) == sorted((*each[:3], f"{each[3]}, found in storage") for each in expected)


def check_candidates(run: Followed, verdicts: list[dict[str, Any]]) -> None:
    """Every candidate that the chain backed has a verdict with its hash, and its commitments have the hash of the chain's event."""
    judged = [(each["block"], each["candidate_hash"]) for each in verdicts if each["kind"] == "candidate"]
    backed = []
    for block in run.blocks():
        raw = run.recording.blocks[run.recording.canonical[block.number]].storage[to_hex(keys.SYSTEM_EVENTS)]
        events = [each for each in run.runtime.events(bytes.fromhex(raw[2:])) if each.name == "CandidateBacked"]
        assert [event.fields[0]["commitments_hash"] for event in events] == [
            to_hex(each.commitments_hash) for each in block.candidates
        ]
        backed += [(block.number, each.candidate_hash.hex()) for each in block.candidates]
    assert len(backed) > 20
    assert judged == backed


def check_inclusions(run: Followed, verdicts: list[dict[str, Any]]) -> None:
    """Every candidate that the chain included is enacted in its block."""
    enacted = [(each["block"], each["para_id"]) for each in verdicts if each["kind"] == "inclusion" and each["enacted"]]
    assert enacted == [(block.number, each.para_id) for block in run.blocks() for each in block.included]


def check_snapshot(running: Stream, run: Followed) -> None:
    """The facts of the block with a snapshot equal the recorded values, which its state root proves."""
    given = [
        records.decode(records.FACTS, value)
        for _, value in consume(running.kafka, running.prefix, [records.FACTS])[records.FACTS]
    ]
    (facts,) = [each for each in given if (each["lane"], each["block"]) == ("proven", SNAPSHOT)]
    heads = {
        keys.channel_key(keys.HRMP_CHANNELS, each["sender"], each["recipient"]): each["mqc_head"]
        for each in facts["channels"]
    }
    recorded = {bytes.fromhex(key[2:]): value for key, value in run.recording.snapshots[SNAPSHOT].values.items()}
    proven = {key: value for key, value in recorded.items() if key.startswith(keys.HRMP_CHANNELS)}
    assert len(proven) > 40
    assert {key: heads[key] for key in proven} == {
        key: decode_channel(bytes.fromhex(value[2:])).mqc_head for key, value in proven.items()
    }
    assert sum(head is not None for head in heads.values()) > 20
