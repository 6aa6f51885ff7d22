# SPDX-License-Identifier: Apache-2.0
"""A console that looks on while it, the broker and the job are killed: it must show what the lanes have done, and change nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tests.crash.world import PATIENCE_S, Failure, World
from validator.config.toml import to_toml

KILLS: Final = ("console", "console and broker", "broker", "console and machine", "machine", "console")
"""Which processes die together; each time in the middle of traffic."""

ANSWER_S_MAX: Final = 20.0
"""Seconds for which a request waits for an answer."""


class ConsoleProcess:
    """A process of `validator console`, started again whenever it was killed."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.folder = world.folder / name
        self.folder.mkdir()
        tables = world.config().model_dump(mode="json", exclude_defaults=True)
        (self.folder / "validator.toml").write_text(to_toml(tables), encoding="utf-8")
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Start it; its address follows once it listens."""
        self.starts += 1
        self._said = self.folder / f"address-{self.starts}"
        with self._said.open("w") as output, (self.folder / "errors").open("a") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "validator",
                    "console",
                    f"--config={self.folder / 'validator.toml'}",
                    "--listen=127.0.0.1:0",
                ],
                stdout=output,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "COLUMNS": "200"},
            )

    def kill(self) -> int:
        """Kill it, and return how many processes that were."""
        self._process.kill()
        self._process.wait()
        return 1

    def supervise(self) -> None:
        """Start it again if it was killed, or found no Kafka when it began. Raises `Failure` if it ended by itself later."""
        code = self._process.poll()
        if code is None:
            return
        if code != -signal.SIGKILL and self.address is not None:
            raise Failure(f"the console ended by itself with code {code}: {self._last_error()}")
        self.start()

    @property
    def address(self) -> str | None:
        """What it has printed: its address with the token."""
        return self._said.read_text().strip() or None

    def consumed(self, lane: str) -> int | None:
        """Return how many records a lane's page says that the lane has taken; None while it gives no answer or knows of none."""
        if self.address is None:
            return None
        parts = urlsplit(self.address)
        (token,) = parse_qs(parts.query)["token"]
        request = urllib.request.Request(
            f"{parts.scheme}://{parts.netloc}/lanes/{lane}", headers={"Authorization": f"Bearer {token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:
                page = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise Failure(f"the console answers /lanes/{lane} with {error.code}: {error.read()[:200]!r}") from error
        except OSError:  # it has just been killed
            return None
        # a row for each lane: its name, then what has become of its records
        found = re.search(rf">{re.escape(lane)}</a></td>(?:(?!</tr>).)*?<b>([0-9,]+)</b> =", page, re.DOTALL)
        return int(found[1].replace(",", "")) if found else None

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        """Kill what is left."""
        self.kill()

    def _last_error(self) -> str:
        return (self.folder / "errors").read_text(encoding="utf-8").strip().rpartition("\n")[2]


class ConsoleEpisode:
    """A console reads along; all the time each lane's output is compared as it arrives."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name

    def run(self) -> tuple[str, int]:
        """Return a note and the number of killed processes."""
        console = ConsoleProcess(self._world, self._name)
        signals = 0
        try:
            for kill in KILLS:
                signals += self._survive(console, kill)
            if code := console.stop():
                raise Failure(f"asked to stop, the console ended with code {code}")
        finally:
            console.close()
        return f"{len(KILLS)} kills, {console.starts} consoles", signals

    def _survive(self, console: ConsoleProcess, kill: str) -> int:
        """Kill in the middle of a segment's traffic, and wait until the console shows that each lane has taken all of it."""
        world = self._world
        segment = world.traffic.segment()
        half = len(segment) // 2
        world.feed(segment[:half])
        signals = (console.kill() if "console" in kill else 0) + world.strike(kill)
        world.feed(segment[half:])
        world.settle()

        def shown() -> bool:
            console.supervise()
            counters = world.undisturbed.counters()
            return all(console.consumed(lane) == counted["consumed"] for lane, counted in counters.items())

        world.wait(shown, f"the console shows all inputs after the death of {kill}")
        return signals
