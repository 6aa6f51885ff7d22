# SPDX-License-Identifier: Apache-2.0
"""Gateways of Channel between a peer and the job: killed alone, with the broker and with the job, while the peer submits and watches.

The peer submits the candidates of the world's own traffic, so what readers see of the lanes is compared as ever. A candidate may be in
Kafka twice, with equal bytes, where a gateway died before it could acknowledge it: a lane counts it as a duplicate. And the peer must
have seen each verdict once.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

sys.path.append(
    str(Path(__file__).resolve().parents[2] / "plugins" / "channel" / "tests")
)  # helpers of the plugin's tests

from validator_channel.application import SUBMIT_TOPICS
from validator_channel.client import ClientLimits
from validator_channel.events import MessageDelivered

from tests.channel.gateways import GatewayProcess, Gateways, free_port
from tests.crash.bodies_judge import compare
from tests.crash.traffic import Sent
from tests.crash.world import PREFIX, Failure, World
from validator.codec.json_form import to_json
from validator.errors import Unavailable, UserError
from validator.kafka.reader import TopicReader, TopicRecord
from validator.plugin.runtime import RuntimePlan, codec_of

CODEC = codec_of([RuntimePlan("router")])

PEER = "alice"

SEGMENTS_PER_KILL = 4

KILLS = ("gateway", "gateway", "gateway and broker", "gateway and machine", "standby", "machine", "both gateways")

READ_S_MAX = 5.0
"""Seconds in which Kafka has to answer before the world looks whether it has ended."""

PENDING_MAX = 16
"""Candidates of the peer that are not acknowledged: this many may be in Kafka twice."""


class Peer(threading.Thread):
    """A peer in its own event loop, which submits what it is given and keeps the verdicts that it sees."""

    def __init__(self, gateways: Gateways, ports: Sequence[int]) -> None:
        super().__init__(name="peer", daemon=True)
        self._gateways, self._ports = gateways, ports
        self._ready = threading.Event()
        self.acknowledged = 0
        self.seen: dict[str, list[str]] = {}
        """By lane, the verdicts as text."""
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self.join()

    def run(self) -> None:
        asyncio.run(self._main())

    def submit(self, records: Sequence[dict[str, Any]]) -> Any:
        """Submit candidates; the future is done once all are acknowledged."""

        async def all_of_them() -> None:
            await asyncio.gather(*(self._client.submit("candidates", record) for record in records))

        return asyncio.run_coroutine_threadsafe(all_of_them(), self._loop)

    async def _main(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        limits = ClientLimits(pending_max=PENDING_MAX, pause_s_min=0.05, pause_s_max=1.0)
        self._client = self._gateways.client(PEER, *self._ports, limits=limits, on_event=self._on_event)
        async with self._client:
            watching = asyncio.create_task(self._watch())
            self._ready.set()
            await self._end.wait()
            watching.cancel()

    async def _watch(self) -> None:
        try:
            async for event in self._client.watch("verdicts"):
                if event.record is not None:
                    self.seen.setdefault(str(event.record["lane"]), []).append(as_text(event.record))
        except Exception as error:  # noqa: BLE001 - the main thread reports it
            self.failure = error

    def _on_event(self, _: object, event: object) -> None:
        self.acknowledged += isinstance(event, MessageDelivered) and event.topic in SUBMIT_TOPICS.values()


class Place:
    """Where a gateway runs, on its own port; started again whenever it has ended."""

    def __init__(self, gateways: Gateways, name: str) -> None:
        self._gateways, self._name = gateways, name
        self.port = free_port()
        self._stack = ExitStack()
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Start a gateway, and clean up after the one before."""
        self._stack.close()
        listen = {"listen": f"127.0.0.1:{self.port}"}
        self.gateway: GatewayProcess = self._stack.enter_context(self._gateways.start(self._name, **listen))
        self.starts += 1

    @property
    def ended(self) -> bool:
        """Whether nothing runs here."""
        return self.gateway.process.poll() is not None

    def kill(self) -> int:
        """Kill the gateway."""
        self.gateway.send(signal.SIGKILL)
        self.gateway.process.wait()
        return 1

    def close(self) -> None:
        """Kill what is left."""
        self._stack.close()


class ChannelEpisode:
    """Two gateways, one of them as standby, and a peer that may submit for every para of the world's chains."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        folder = world.folder / name
        folder.mkdir()
        self._gateways = Gateways(folder, world.kafka, PREFIX)
        self._paras = paras_of(world)
        lanes = {lane: sorted(paras) for lane, paras in self._paras.items()}
        self._gateways.add_peer(PEER, lanes=lanes, records_per_s=1_000_000, burst=1_000_000)
        self._gateways.write_registry()
        self._twice = 0

    def run(self) -> tuple[str, int]:
        """Make each kill while the peer submits; return a note and the number of killed processes."""
        kills = list(KILLS)
        self._world.random.shuffle(kills)
        self._places = [Place(self._gateways, name) for name in ("one", "two")]
        signals = 0
        try:
            with Peer(self._gateways, [each.port for each in self._places]) as self._peer:
                for kill in kills:
                    signals += self._submit(kill)
                self._check_seen()
                self._stop()
        finally:
            for place in self._places:
                place.close()
        starts = sum(place.starts for place in self._places)
        count = f"{self._peer.acknowledged} candidates, {self._twice} of them twice in Kafka"
        return f"{len(kills)} kills, {count}, {starts} gateways", signals

    def _submit(self, kill: str) -> int:
        world = self._world
        segments = [world.traffic.segment() for _ in range(SEGMENTS_PER_KILL)]
        through, direct = divided([sent for segment in segments for sent in segment], self._paras)
        # no block is complete before its record, which comes afterwards: what the lanes emit does not depend on the order
        world.undisturbed.take(through)
        moment = self._peer.acknowledged + world.random.randrange(max(1, len(through) - 1))
        done = self._peer.submit([to_json("candidates", sent.value, CODEC) for sent in through])
        self._wait(lambda: self._peer.acknowledged >= moment or done.done(), "the peer's candidates are acknowledged")
        signals = self._strike(kill)
        self._wait(done.done, "all of the peer's candidates are acknowledged")
        done.result()
        self._take_written(through)
        world.feed(direct)
        self._wait(lambda: world.reader.complete, "all output for the peer's candidates")
        world.settle()
        return signals

    def _strike(self, kill: str) -> int:
        signals = 0
        listening = [place for place in self._places if place.gateway.port is not None]
        for place in self._places:
            standby = place not in listening
            if kill == "both gateways" or (kill == "standby" if standby else kill.startswith("gateway")):
                signals += place.kill()
        return signals + self._world.strike(kill)

    def _take_written(self, through: Sequence[Sent]) -> None:
        """Compare what the gateways have written with what was submitted, and account for it."""
        world = self._world
        read: list[list[TopicRecord]] = []
        self._wait(lambda: self._read_into(read), "what the gateways have written can be read")
        (written,) = read
        found, expected = Counter(record.value for record in written), Counter(sent.value for sent in through)
        if found.keys() != expected.keys() or found - expected != found - Counter(expected.keys()):
            raise Failure(f"the gateways wrote {len(found)} candidates, the peer submitted {len(expected)} others")
        again = [Sent("candidates", record.key or b"", record.value) for record in more_than_once(written)]
        if len(again) > PENDING_MAX * len(self._places):
            raise Failure(
                f"{len(again)} candidates are in Kafka twice, expected at most {PENDING_MAX} for each gateway"
            )
        self._twice += len(again)
        world.undisturbed.take(again)
        world.delivered["candidates"] += len(written)

    def _read_into(self, read: list[list[TopicRecord]]) -> bool:
        """Add the candidates that are new in Kafka; return False while it is away, so that the world can start it again."""
        try:
            with TopicReader(self._world.kafka, PREFIX, ["candidates"], patience_s=READ_S_MAX) as reader:
                read.append(list(reader.read_to_end())[self._world.delivered["candidates"] :])
        except Unavailable:
            return False
        return True

    def _check_seen(self) -> None:
        """Wait for the peer's last verdict, and compare all of them with those of the undisturbed run."""
        expected: dict[str, list[str]] = {}
        for (lane, topic), records in self._world.undisturbed.output.items():
            if topic == "verdicts":
                shown = [to_json(topic, value) for _, value in records]
                expected[lane] = [as_text(each) for each in shown if each["para_id"] in self._paras[lane]]
        total = sum(map(len, expected.values()))
        self._wait(lambda: sum(map(len, self._peer.seen.values())) >= total, "the peer sees every verdict")
        for lane, verdicts in expected.items():
            seen = self._peer.seen.get(lane, [])
            compare(
                [(each.encode(), b"") for each in verdicts],
                [(each.encode(), b"") for each in seen],
                f"the peer's verdicts of {lane}",
                self._world.reader.tally,
            )
        self._world.check()

    def _stop(self) -> None:
        for place in self._places:
            place.gateway.send(signal.SIGTERM)
        self._world.wait(lambda: all(place.ended for place in self._places), "the gateways end")
        for place in self._places:
            code = place.gateway.process.returncode
            if code and not (code == -signal.SIGTERM and not place.gateway.lines):  # it was only starting
                raise Failure(f"asked to stop, a gateway ended with code {code}")

    def _wait(self, condition: Any, what: str) -> None:
        def met() -> bool:
            for place in self._places:
                if place.ended:
                    if place.gateway.process.returncode != -signal.SIGKILL:
                        raise Failure(f"a gateway ended by itself: {place.gateway.lines[-3:]}")
                    place.start()
            if self._peer.failure is not None:
                raise Failure(f"the peer's watch ended: {self._peer.failure}")
            return bool(condition())

        self._world.wait(met, what)


def paras_of(world: World) -> dict[str, set[int]]:
    """Return, by lane, the paras that have candidates."""
    return {
        chain.lane: {
            to_json("candidates", each.value, CODEC)["para_id"] for each in chain.records if each.topic == "candidates"
        }
        for chain in world.chains
    }


def divided(records: Sequence[Sent], paras: dict[str, set[int]]) -> tuple[list[Sent], list[Sent]]:
    """Return the candidates that a peer can submit, each once, and everything else."""
    known = {lane.encode() for lane in paras}
    through: dict[bytes, Sent] = {}
    direct: list[Sent] = []
    for sent in records:
        if sent.topic == "candidates" and sent.key in known and sent.value not in through and _is_candidate(sent):
            through[sent.value] = sent
        else:
            direct.append(sent)
    return list(through.values()), direct


def _is_candidate(sent: Sent) -> bool:
    try:
        return bool(to_json("candidates", sent.value, CODEC))
    except UserError:
        return False


def more_than_once(written: Sequence[Any]) -> list[Any]:
    """Return the records whose value was there before."""
    seen: set[bytes] = set()
    return [record for record in written if record.value in seen or seen.add(record.value)]  # type: ignore[func-returns-value]


def as_text(record: Any) -> str:
    """Return a record in a form that can be compared."""
    return json.dumps(dict(record), sort_keys=True)
