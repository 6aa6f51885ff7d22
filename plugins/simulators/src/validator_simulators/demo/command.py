# SPDX-License-Identifier: Apache-2.0
"""`validator demo`: run broker, job and a simulated relay chain in one command, and compare every verdict with a model."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer
from rich.console import Console
from rich.live import Live

from validator.cli.command_api import (
    DEFAULT_PROTOCOL,
    EmbeddedBroker,
    Service,
    TopicReader,
    UserError,
    VisibleConsole,
    configured_by_environment,
    console_beside,
    describe,
    ensure_jars,
    exit_codes,
    jar_progress,
    load_config,
    state_directory,
    terminated_as_interrupted,
    to_json,
    to_toml,
)
from validator_simulators import settings_of_profile
from validator_simulators.demo.comparison import Comparison
from validator_simulators.demo.feed import Feed
from validator_simulators.demo.screen import DemoProgress, DemoScreen, print_summary
from validator_simulators.installed import chain_table, simulation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event as Flag

    from validator.cli.command_api import Config, TopicRecord
    from validator_simulators import Simulation

OUTPUT_TOPICS: Final = ("verdicts", "dispatches", "channel-events", "dead-letters", "lanes")

FEED_S: Final = 30.0
"""Seconds over which the traffic is spread if no rate is given."""
BLOCKS_PER_S_MIN: Final = 7.0
SILENCE_S_MAX: Final = 60.0
"""Seconds without a new record after which expected records count as missing."""
LINE_INTERVAL_S: Final = 2.0
FRAMES_PER_S: Final = 8
WAIT_S: Final = 0.2
"""Seconds between two looks at whether the job still runs."""


def demo(
    blocks: Annotated[int, typer.Option(min=1, help="Blocks to stream.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the simulated chain.")] = 1,
    protocol: Annotated[str, typer.Option(help="Rule set: the name of an installed protocol.")] = DEFAULT_PROTOCOL,
    profile: Annotated[
        str, typer.Option(help="Load: demo, real, full or ceiling, as in `validator simulate`.")
    ] = "demo",
    rate: Annotated[
        float, typer.Option(min=0.0, help="Blocks per second; 0 spreads the blocks over half a minute.")
    ] = 0.0,
    directory: Annotated[
        Path | None,
        typer.Option(
            help="New or empty folder for everything the demo writes. Default: a temporary one, removed after a successful run."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object; progress goes to standard error.")
    ] = False,
    real: Annotated[
        bool,
        typer.Option(
            "--real",
            help="Follow a recorded run of a real chain through a node; its verdicts are compared with the chain.",
        ),
    ] = False,
    show_console: Annotated[
        bool,
        typer.Option(
            "--console",
            help="Also serve the web console, and keep everything running after the last verdict until Ctrl-C.",
        ),
    ] = False,
    recorded: Annotated[
        Path | None,
        typer.Option(
            "--recorded",
            metavar="FOLDER",
            help="With --real: recorded blocks of a node, instead of those that are shipped.",
        ),
    ] = None,
) -> None:
    """Stream a simulated relay chain through Kafka and Spark, and show its verdicts as they arrive.

    Starts its own broker and Spark job and feeds the chain block by block, with interleaved topics. Compares every verdict and dispatch
    with a model that shares no code with the rules. Exit code 0 if all agree; 1 if one differs or is missing, or if the lane's record
    counts do not add up.

    With --real, recorded blocks of Polkadot go from a node that speaks JSON-RPC through the transport `relay-chain`, Kafka and Spark. A
    judge compares the lane with its chain: everything that the chain accepted must be accepted.
    """
    if recorded is not None and not real:
        raise UserError("--recorded: expected only with --real")
    if real and show_console:
        raise UserError("--console: expected without --real")
    if real:
        from validator_simulators.demo.real import demo_real

        demo_real(recorded, directory, as_json=as_json)
        return
    settings = settings_of_profile(profile, seed=seed, blocks=blocks)
    simulation = simulation_of(protocol, settings)

    def play(folder: Path, console: Console) -> dict[str, Any]:
        progress = DemoProgress(settings, Comparison())
        progress.began = time.monotonic()
        pace = rate or max(BLOCKS_PER_S_MIN, blocks / FEED_S)
        Demo(simulation, folder, progress, console, rate=pace, show_console=show_console).run()
        return summary_of(progress, folder)

    run_demo(play, directory, as_json=as_json)


def run_demo(play: Callable[[Path, Console], dict[str, Any]], directory: Path | None, *, as_json: bool) -> None:
    """Play a demo in a folder, which is removed if it succeeds, and print the summary that ``play`` returns.

    Raises `UserError`, and ``typer.Exit`` with 1 if the summary is not ok, or after an interruption.
    """
    console = VisibleConsole(stderr=as_json)
    with own_configuration(), terminated_as_interrupted():
        place = Directory(directory)
        try:
            with jar_progress() as shown:
                ensure_jars(progress=shown)
            summary = play(place.path, console)
        except KeyboardInterrupt:
            place.clear()
            raise typer.Exit(exit_codes.INTERRUPTED) from None
        if summary["ok"]:
            place.clear()
    if as_json:
        sys.stdout.write(json.dumps(summary) + "\n")
    else:
        print_summary(console, summary)
    if not summary["ok"]:
        raise typer.Exit(exit_codes.DISAGREEMENT)


class DemoFeed(Protocol):
    """What fills the input topics of a demo (`validator_simulators.demo.feed.Feed`)."""

    go: Flag
    done: Flag
    failure: BaseException | None
    sent_at: dict[int, float]


class Directory:
    """The folder of one demo run. It is temporary unless the user named it."""

    def __init__(self, wanted: Path | None) -> None:
        self._temporary = wanted is None
        if wanted is None:
            parent = state_directory() / "demo"
            parent.mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
            return
        self.path = wanted.absolute()
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise UserError(f"--directory: expected a folder that is new or empty, found {wanted}")
        self.path.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Remove it if it is temporary."""
        if self._temporary:
            shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def own_configuration() -> Iterator[None]:
    """Hide all VALIDATOR_ variables except the job's from the demo, so that simulated traffic never reaches a user's Kafka."""
    hidden = {
        name: value
        for name, value in os.environ.items()
        if configured_by_environment(name) and not name.upper().startswith("VALIDATOR_JOB__")
    }
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def configuration(chain: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return the tables of a `validator.toml` for a simulated chain."""
    return {"job": {"directory": str(directory / "job")}, "chains": {chain["lane"]: chain_table(chain)}}


class Demo:
    """One run: starts the service, feeds it, follows its output until all of it has arrived, and stops it."""

    def __init__(
        self,
        simulation: Simulation,
        directory: Path,
        progress: DemoProgress,
        console: Console,
        *,
        rate: float,
        show_console: bool = False,
    ) -> None:
        self._simulation = simulation
        self._directory = directory
        self._progress = progress
        self._console = console
        self._rate = rate
        self._show_console = show_console
        self._live = console.is_terminal
        self._next_line = 0.0

    def run(self) -> None:
        """Run the demo. Raises `UserError` if the job or the broker does not start, or fails."""
        service = Service(self._config(), EmbeddedBroker(self._directory / "broker"), self._on_event)
        with ExitStack() as stack:
            if self._live:
                screen = Live(
                    DemoScreen(self._progress), console=self._console, refresh_per_second=FRAMES_PER_S, transient=True,
                    redirect_stdout=False, redirect_stderr=False,
                )  # fmt: skip
                stack.enter_context(screen)
            try:
                service.start()
                if self._show_console:
                    self._progress.console_url = stack.enter_context(
                        console_beside(service.config, open_browser=self._live)
                    ).url
                    self._line(f"the console is at {self._progress.console_url}")
                self._stream(service)
                if self._show_console:
                    self._say("all verdicts are here; the console stays until Ctrl-C")
                    _wait_for_interrupt(service.job.ended)
            finally:
                self._say("stopping")
                service.stop()

    def _config(self) -> Config:
        path = self._directory / "validator.toml"
        path.write_text(to_toml(self._tables()), encoding="utf-8")
        return load_config(path)

    def _tables(self) -> dict[str, Any]:
        return configuration(self._simulation.chain(), self._directory)

    def _stream(self, service: Service) -> None:
        kafka, prefix = service.config.kafka, service.config.topics.prefix
        feed = Feed(
            self._simulation, kafka, prefix, self._progress.comparison, blocks_per_s=self._rate, on_block=self._on_block
        )
        with TopicReader(kafka, prefix, OUTPUT_TOPICS) as reader:
            feed.start()
            try:
                self._follow(service, feed, reader)
            finally:
                feed.stop()

    def _follow(self, service: Service, feed: DemoFeed, reader: TopicReader) -> None:
        progress = self._progress
        last_news = time.monotonic()
        while True:
            records = reader.poll(0.1)
            with progress.lock:
                verdicts = sum(self._observe(record, feed) for record in records)
                progress.take_arrivals(verdicts)
            if verdicts and not feed.go.is_set():
                self._reach("first verdict", f"first verdict after {progress.elapsed_s():.1f} s")
                feed.go.set()
            if records or not feed.done.is_set() or not service.job.ready.is_set():
                last_news = time.monotonic()
            if feed.failure is not None:
                raise feed.failure
            if service.job.ended():
                code = service.job.wait()
                raise UserError(
                    f"the job ended with code {code}: {service.job.failure or f'see {service.job.spark_log}'}"
                )
            if feed.done.is_set() and (progress.comparison.complete() or time.monotonic() - last_news > SILENCE_S_MAX):
                return
            if feed.go.is_set() and time.monotonic() >= self._next_line:
                self._next_line = time.monotonic() + LINE_INTERVAL_S
                self._line(progress.line())

    def _observe(self, record: TopicRecord, feed: DemoFeed) -> int:
        """Take a record as it was read; return 1 if it is a new verdict, otherwise 0."""
        return self._take(record.topic, to_json(record.topic, record.value), feed)

    def _take(self, topic: str, record: dict[str, Any], feed: DemoFeed) -> int:
        """Take a record; return 1 if it is a new verdict, otherwise 0."""
        progress = self._progress
        if not progress.comparison.observe(topic, record):
            return 0
        if topic == "channel-events":
            progress.events.append(record)
        if topic != "verdicts":
            return 0
        progress.take_verdict(record)
        block = record["block"]
        if progress.comparison.verdicts_left[record["lane"], block] == 0 and block in feed.sent_at:
            progress.latencies_s.append(time.monotonic() - feed.sent_at[block])
        return 1

    # --- progress ---

    def _on_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "broker":
                self._progress.bootstrap = event["bootstrap_servers"]
                self._reach("Kafka", f"Kafka answers at {event['bootstrap_servers']}")
            case "topics":
                self._reach("topics", f"{len(event['topics'])} topics")
            case "started":
                self._line("starting Spark")
            case "ready":
                self._reach("Spark", "Spark is ready")
            case "failed":
                self._line(f"failed: {describe(event)}")
            case "output":
                self._line(event["line"])

    def _on_block(self, block: int) -> None:
        self._progress.blocks_sent = block - self._progress.settings.first_block + 1

    def _reach(self, phase: str, text: str) -> None:
        self._progress.reach(phase)
        self._line(f"{self._progress.elapsed_s():6.1f} s  {text}")

    def _say(self, text: str) -> None:
        self._progress.ending = text
        self._line(f"{self._progress.elapsed_s():6.1f} s  {text}")

    def _line(self, text: str) -> None:
        """Print a line if there is no live screen."""
        if not self._live:
            self._console.print(text, highlight=False, soft_wrap=True, markup=False)


def _wait_for_interrupt(ended: Callable[[], bool]) -> None:
    """Return at Ctrl-C, or once the job has ended."""
    try:
        while not ended():
            time.sleep(WAIT_S)
    except KeyboardInterrupt:
        return


def summary_of(progress: DemoProgress, directory: Path) -> dict[str, Any]:
    compared = progress.comparison
    problems = compared.problems()
    account = {
        part: sum(status[part] for status in compared.status.values())
        for part in ("consumed", "accepted", "rejected", "duplicate", "dead", "waiting")
    }
    return {
        "ok": not problems,
        "seed": progress.settings.seed,
        "partner": progress.partner,
        "blocks": progress.settings.blocks,
        "records": compared.records_sent,
        "verdicts": compared.verdicts,
        "agreed": compared.agreed,
        "disagreed": compared.disagreed,
        "missing": len(compared.missing()),
        "dispatches_expected": len(compared.expected_dispatches),
        "dispatches_agreed": compared.dispatches_agreed,
        "rejected": dict(sorted(compared.rejected.items())),
        "channels_opened": compared.events["opened"],
        "channels_closed": compared.events["closed"],
        "channel_events": dict(sorted(compared.events.items())),
        "messages": compared.messages.summary(),
        "accounting": account,
        "dead_letters": compared.dead_letters,
        "repeated": compared.repeated,
        "seconds": {
            **{name.replace(" ", "_").lower(): round(at, 1) for name, at in progress.phases.items()},
            "first_verdict": round(progress.phases["first verdict"], 1) if "first verdict" in progress.phases else None,
            "total": round(progress.elapsed_s(), 1),
        },
        "latency_ms": {"p50": progress.latency_ms(0.5), "p99": progress.latency_ms(0.99)},
        "problems": problems,
        "directory": str(directory),
    }
