# SPDX-License-Identifier: Apache-2.0
"""The public API for commands of plugins: entry points of group ``validator.commands``, each a `typer.Typer`.

`run_plugin_job` runs a plugin's job (`validator.plugin.job_api`) as `validator run` runs the lanes, `run_transport` a transport as
`validator transport run` does, `transport_beside` another one next to it, and `service_running` broker and lanes as `validator up` does.
`lanes_to_restart` says whether the job has the configuration's rules. The rest reads and writes the configuration, reads committed records,
and sends records. `working` and `until_first` show on a terminal what takes a while.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import typer

from validator import exit_codes
from validator.cli.common import ConfigPath, Json, connected, load_job_config, say, terminated_as_interrupted
from validator.cli.common import parse as read_line
from validator.cli.job_log import log_printer
from validator.cli.progress import until_first, working
from validator.cli.run import TOPICS_S_MAX, run_job, service_of
from validator.cli.table import VisibleConsole
from validator.cli.transport import prepared, run_transport
from validator.config import Config, load_config
from validator.config.toml import to_toml
from validator.errors import GivenUp, LeaseLost, Unavailable, UserError
from validator.job.deployment import JOB_RESTARTS_MAX
from validator.job.installed import configured_job, create_job_topics, of_job
from validator.job.orders import lane_reports
from validator.job.process import JobProcess
from validator.kafka.reader import POLL_S, TopicReader, TopicRecord
from validator.kafka.sender import RecordSender
from validator.kafka.topics import wait_for_topics
from validator.lanes.configured import check_chains, job_directory, lane_definitions
from validator.lanes.kept_start import kept_rules, kept_starts, rules_changed
from validator.plugin.limits import ENDING_S_MAX
from validator.transports.meter import measuring
from validator.transports.runner import choose_transport
from validator.transports.runner import run_transport as run_chosen_transport
from validator.waiting import Patience, wait_out

__all__ = [
    "POLL_S",
    "Config",
    "ConfigPath",
    "Json",
    "RecordSender",
    "RecordedRun",
    "SideTask",
    "TopicReader",
    "TopicRecord",
    "UserError",
    "VisibleConsole",
    "check_lanes",
    "configured_job",
    "connected",
    "executed_blocks",
    "lanes_to_restart",
    "load_config",
    "read_line",
    "run_plugin_job",
    "run_transport",
    "say",
    "service_running",
    "terminated_as_interrupted",
    "to_toml",
    "transport_beside",
    "transport_config",
    "until_first",
    "working",
]


SIDE_TASK_END_S_MAX: Final = 5.0
"""Seconds that a side task may take to end; after that it is left alone."""


def executed_blocks(config: Config) -> dict[str, int]:
    """Return the last executed block of each lane that has one, as the lanes' job says it. Raises `UserError`."""
    statuses = lane_reports(config).statuses
    return {lane: row["executed_block"] for lane, row in statuses.items() if row["executed_block"] is not None}


def check_lanes(config: Config) -> None:
    """Check the chains of a configuration with their rules, limits, plugins and states, as a job does first. Raises `UserError`."""
    check_chains(config)
    lane_definitions(config)


def transport_config(config: Config, name: str) -> Any:
    """Return what a transport gets as its plugin's configuration. Raises `UserError`."""
    return choose_transport(config, name).config


@contextmanager
def transport_beside(name: str, config_path: ConfigPath) -> Iterator[threading.Event]:
    """Run a transport in a thread of this process until the block is left; the event says that it has ended by itself.

    As a separate process it would outlive this one if that is killed. What ends it is said on standard error, and this process continues.
    Raises `UserError` as `run_transport` does before it starts.
    """
    config, chosen, group = prepared(name, load_config(config_path))
    stop, ended = threading.Event(), threading.Event()

    def run_once() -> None:
        run_chosen_transport(
            chosen,
            group,
            stop,
            lambda active: say(f"transport {name}: standby; active is {active}"),
            lambda _: None,
            partial(measuring, config, chosen.name, say, own=chosen.transport.metrics),
        )

    def run() -> None:
        patience = Patience(config.job.give_up_after)
        try:
            while True:
                try:
                    wait_out(run_once, patience, lambda pause: say(f"transport {name}: {pause.reason}"), stop.is_set)
                    return
                except LeaseLost as error:
                    say(f"transport {name}: {error}; it begins again as standby")
        except Unavailable:
            pass  # asked to stop while Kafka was away
        except (UserError, GivenUp) as error:
            say(f"transport {name} has ended: {error}")
        finally:
            ended.set()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join(ENDING_S_MAX)


def lanes_to_restart(config: Config) -> Callable[[], list[str]]:
    """Return a function that returns the lanes whose rules or handlers the job does not have yet, as far as its folder says so.

    A job keeps what it started with, so these need another start of it. A folder in which no job has started says nothing. Raises
    `UserError` for lanes that a job would refuse.
    """
    folder = job_directory(config) / "lanes"
    definitions = lane_definitions(config)

    def found() -> list[str]:
        kept = kept_rules(kept_starts(folder))
        return [lane for lane, definition in definitions.items() if rules_changed(kept, {lane: definition})]

    return found


@contextmanager
def service_running(config_path: ConfigPath, *, as_json: bool = False) -> Iterator[Config]:
    """Start a broker if none is configured, topics and job; stop them at the end. Yields the configuration with Kafka's address.

    A job that stops by itself is started again, at most `JOB_RESTARTS_MAX` times without a completed batch. If it ends for another reason,
    this process gets SIGTERM, and ``typer.Exit`` has the job's code. Raises `UserError`, `GivenUp`.
    """
    config = load_job_config(config_path)
    service = service_of(config, log_printer(as_json=as_json))
    stopping, codes = threading.Event(), list[int]()

    def watch() -> None:
        code = service.run(JOB_RESTARTS_MAX)
        if not stopping.is_set():
            codes.append(code)
            os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        service.start()
        watcher.start()
        yield service.config
    finally:
        stopping.set()
        service.stop()
    if codes and codes[0] != exit_codes.OK:
        raise typer.Exit(codes[0])


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A recorded run of a chain that a plugin offers to `validator demo --real` (entry point ``real`` of group ``validator.demos``).

    The entry point is a function of a folder of recordings, or None for what the plugin ships, and of a folder to write to; it returns a
    context manager of this.
    """

    lane: str
    title: str
    first_block: int
    """The first block that the lane executes, which has the candidates that were pending when it joined."""
    tables: Mapping[str, Any]
    """The tables of a `validator.toml`."""
    expected: Mapping[int, Sequence[Mapping[str, Any]]]
    """By block, the verdicts that the chain's acceptance stands for: ``kind``, ``index``, ``ok``."""
    records: int
    """How many records the lane will consume."""
    transports: tuple[str, ...]
    """The transports to run; the first one ends by itself after the last block."""
    status_topic: str
    status: Callable[[bytes], tuple[int, int, str]]
    """Of a record of ``status_topic``: the last block that was compared, disagreements that nothing explains, and a line."""
    proceed: Callable[[], None]
    """Called once the first verdict is there: the node may finalise more blocks."""


SideTask = Callable[[Config, Callable[[dict[str, Any]], None], threading.Event], None]
"""Runs in a thread next to a job until the event is set, and may log events as the job does."""


def run_plugin_job(
    config: Config, name: str, *, as_json: bool, rebuild: bool = False, side_task: SideTask | None = None
) -> None:
    """Create the missing topics of a plugin's job, and run it until Ctrl-C or SIGTERM.

    Raises `UserError`, `GivenUp`, ``typer.Exit`` with the job's code.
    """
    if rebuild:
        config = config.model_copy(update={"job": config.job.model_copy(update={"rebuild": True})})
    job = configured_job(config, name)
    log = log_printer(as_json=as_json)

    def create() -> None:
        wait_for_topics(config.kafka, prefix=config.topics.prefix, patience_s=TOPICS_S_MAX)
        create_job_topics(config, job)

    wait_out(create, Patience(config.job.give_up_after), lambda pause: log({"event": "waiting", **pause.event()}))
    process = JobProcess(of_job(config, name), log, plugin=name)
    with terminated_as_interrupted(), _running(side_task, config, log):
        code = run_job(process)
    raise typer.Exit(code)


@contextmanager
def _running(side_task: SideTask | None, config: Config, log: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    if side_task is None:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=side_task, args=(config, log, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SIDE_TASK_END_S_MAX)
