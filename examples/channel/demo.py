# SPDX-License-Identifier: Apache-2.0
"""Peers submit a simulated relay chain over Channel and receive its verdicts: keys, registry, broker, job, gateway, peers.

``make demo-channel`` shows it live; ``--json`` prints a summary. With ``--kill-gateway`` the gateway is killed in the middle, and is
started again: nothing is lost, and each verdict arrives once. Exit code 0 if every verdict is as expected.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from scene import PeerFiles, Scene
from screen import draw, progress_line
from traffic import Traffic
from validator_simulators import Simulation, settings_of_profile
from validator_simulators.installed import chain_table, simulation_of

from validator.config import DEFAULT_PROTOCOL

TEAMS = 3
"""Paras with their own peer: those with most candidates."""
PROGRESS_S = 5.0
"""Seconds between two lines about progress when the output is no terminal."""
START_S_MAX = 300.0
"""Seconds within which everything must have started."""


class Demo:
    """One run in a folder."""

    def __init__(
        self, simulated: Callable[[], Simulation], folder: Path, console: Console, *, rate: float, kills: bool
    ) -> None:
        simulation = simulated()
        self._console = console
        self._rate, self._kills = rate, kills
        self._blocks = simulation.settings.blocks
        self._began = time.monotonic()
        self._status = ""
        self.scene = Scene(folder, self._say)
        chain = simulation.chain()
        files = [PeerFiles("relay", None), *(PeerFiles(f"team-{para}", [para]) for para in busiest(simulated()))]
        self._say("making keys and certificates, writing the registry")
        self.scene.prepare(files, {chain["lane"]: chain_table(chain)}, chain["lane"])
        self.traffic = Traffic(simulation, files, self.scene.port)

    def run(self) -> None:
        """Run everything and stop it again. Raises ``RuntimeError``."""
        try:
            self.scene.start()
            self._await_start()
            asyncio.run(self._stream())
        finally:
            self._say("stopping")
            self.scene.stop()

    def summary(self) -> dict[str, Any]:
        """Return what came out."""
        traffic = self.traffic
        problems = traffic.comparison.problems()
        problems = [each for each in problems if "lanes consumed" not in each]  # the peers do not watch lanes
        peers = {}
        for peer in traffic.peers:
            peers[peer.name] = {
                "sent": peer.sent, "acknowledged": peer.acknowledged, "resubmitted": peer.resubmitted, "refused": peer.refused,
                "verdicts": peer.verdicts, "expected_verdicts": traffic.expected[peer.name], "accepted": peer.accepted,
                "rejected": peer.rejected, "twice": peer.twice, "foreign": peer.foreign, "wire_bytes_sent": peer.wire.sent,
                "wire_bytes_received": peer.wire.received, "connections": peer.wire.connections, "ack_p50_ms": peer.latency_ms,
            }  # fmt: skip
            for what in ("refused", "twice", "foreign"):
                if peers[peer.name][what]:
                    problems.append(f"{peer.name}: {what}: {peers[peer.name][what]}")
        return {
            "ok": not problems,
            "blocks": traffic.blocks_sent,
            "gateway_restarts": self.scene.gateway_restarts,
            "seconds": round(time.monotonic() - self._began, 1),
            "peers": peers,
            "problems": problems,
        }

    def _await_start(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        for event in (self.scene.job_ready, self.scene.listening):
            while not event.wait(0.1):
                found = self.scene.problem()
                if found is not None or time.monotonic() > deadline:
                    raise RuntimeError(found or f"nothing is ready after {START_S_MAX:.0f} s: {self.scene.lines[-5:]}")

    async def _stream(self) -> None:
        self._say("streaming")
        screen = self._screen() if self._console.is_terminal else None
        with screen or nullcontext():
            drawing = asyncio.create_task(self._draw(screen))
            await self.traffic.run(self._rate, self._on_block, self.scene.problem)
            drawing.cancel()

    def _screen(self) -> Live:
        return Live(console=self._console, refresh_per_second=8, transient=True)

    async def _draw(self, screen: Live | None) -> None:
        while screen is not None:
            screen.update(draw(self.traffic, self._status, time.monotonic() - self._began, self._console.height))
            await asyncio.sleep(0.125)
        while True:
            await asyncio.sleep(PROGRESS_S)
            self._print(progress_line(self.traffic))

    def _on_block(self, blocks: int) -> None:
        if self._kills and blocks == self._blocks // 2:
            self._say("the gateway is killed")
            self.scene.kill_gateway()

    def _say(self, text: str) -> None:
        self._status = text
        if not self._console.is_terminal or not hasattr(self, "traffic") or not self.traffic.blocks_sent:
            self._print(text)

    def _print(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        self._console.print(f"{seconds:6.1f} s  {text}", highlight=False, markup=False, soft_wrap=True)
        self._console.file.flush()  # a pipe or a file would get it at the end


def busiest(simulation: Simulation) -> list[int]:
    """Return the paras with most candidates; the simulation cannot be used again."""
    blocks = simulation.blocks()
    counts = Counter(record["para_id"] for block in blocks for kind, record in block.records if kind == "candidates")
    return sorted(para for para, _ in counts.most_common(TEAMS))


def main() -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=120, help="blocks to stream")
    parser.add_argument("--seed", type=int, default=1, help="seed of the simulated chain")
    parser.add_argument("--rate", type=float, default=4.0, help="blocks per second")
    parser.add_argument("--kill-gateway", action="store_true", help="kill the gateway in the middle")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--directory", type=Path, help="a new folder for all files; kept")
    arguments = parser.parse_args()
    folder = (arguments.directory or Path(tempfile.mkdtemp(prefix="channel-demo-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=arguments.json)
    settings = settings_of_profile("demo", seed=arguments.seed, blocks=arguments.blocks)
    demo = Demo(
        partial(simulation_of, DEFAULT_PROTOCOL, settings),
        folder,
        console,
        rate=arguments.rate,
        kills=arguments.kill_gateway,
    )
    try:
        demo.run()
    except KeyboardInterrupt:
        return 130
    summary = demo.summary()
    if arguments.json:
        sys.stdout.write(json.dumps(summary) + "\n")
    else:
        console.print(draw(demo.traffic, "done", summary["seconds"]))
        console.print(f"{'every verdict is as expected' if summary['ok'] else summary['problems']}", highlight=False)
    if summary["ok"] and arguments.directory is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if summary["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
