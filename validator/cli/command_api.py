# SPDX-License-Identifier: Apache-2.0
"""The public API for commands of plugins: entry points of group ``validator.commands``, each a `typer.Typer`.

`run_plugin_job` runs a plugin's job (`validator.plugin.job_api`) as `validator run` runs the lanes, `run_transport` a transport as
`validator transport run` does, `transport_beside` another one next to it, and `service_running` broker and lanes as `validator up` does.
`lanes_to_restart` says whether the job has the configuration's rules. The rest reads and writes the configuration, reads committed records,
and sends records. `working` and `until_first` show on a terminal what takes a while. `Service` runs a separate broker and lanes for a
command that follows their output, `console_beside` serves the console next to them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import typer

from validator import exit_codes
from validator.cli.common import (
    ConfigPath,
    Json,
    connected,
    load_job_config,
    say,
    terminated_as_interrupted,
)
from validator.cli.common import parse as read_line
from validator.cli.job_log import describe, log_printer
from validator.cli.progress import jar_progress, until_first, working
from validator.cli.rows import ACCEPTED, REJECTED, moved, why
from validator.cli.run import TOPICS_S_MAX, run_job, service_of
from validator.cli.table import VisibleConsole
from validator.cli.transport import prepared, run_transport
from validator.codec.json_form import encode_input, to_json
from validator.config import DEFAULT_PROTOCOL, Config, load_config
from validator.config.limits import find_limits
from validator.config.table import LANE_PATTERN
from validator.config.toml import to_toml
from validator.errors import GivenUp, LeaseLost, Unavailable, UserError, in_one_line
from validator.job.deployment import JOB_RESTARTS_MAX, Service
from validator.job.installed import configured_job, create_job_topics, of_job
from validator.job.orders import lane_reports
from validator.job.process import JobProcess, configured_by_environment
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.jars import ensure_jars
from validator.kafka.reader import POLL_S, TopicReader, TopicRecord
from validator.kafka.sender import RecordSender
from validator.kafka.topics import wait_for_topics
from validator.lanes.configured import check_chains, job_directory, lane_definitions
from validator.lanes.kept_start import kept_rules, kept_starts, rules_changed
from validator.plugin.limits import ENDING_S_MAX
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.private import write_private
from validator.resources import state_directory
from validator.topics import INPUT_TOPICS
from validator.transports.meter import measuring
from validator.transports.runner import choose_transport
from validator.transports.runner import run_transport as run_chosen_transport
from validator.waiting import Patience, wait_out

if TYPE_CHECKING:
    from validator.console.serve import RunningConsole

__all__ = [
    "ACCEPTED",
    "DEFAULT_PROTOCOL",
    "LANE_PATTERN",
    "POLL_S",
    "REJECTED",
    "Config",
    "ConfigPath",
    "EmbeddedBroker",
    "Json",
    "RecordSender",
    "Service",
    "SideTask",
    "TopicReader",
    "TopicRecord",
    "UserError",
    "VisibleConsole",
    "check_lanes",
    "configured_by_environment",
    "configured_job",
    "connected",
    "console_beside",
    "describe",
    "ensure_jars",
    "executed_blocks",
    "exit_codes",
    "in_one_line",
    "input_encoder",
    "jar_progress",
    "lanes_to_restart",
    "limits_key",
    "load_config",
    "moved",
    "read_line",
    "run_plugin_job",
    "run_transport",
    "say",
    "service_running",
    "state_directory",
    "terminated_as_interrupted",
    "to_json",
    "to_toml",
    "transport_beside",
    "transport_config",
    "until_first",
    "why",
    "working",
    "write_private",
]


SIDE_TASK_END_S_MAX: Final = 5.0
"""Seconds that a side task may take to end; after that it is left alone."""


def executed_blocks(config: Config) -> dict[str, int]:
    """Return the last executed block of each lane that has one, as the lanes' job says it. Raises `UserError`."""
    statuses = lane_reports(config).statuses
    return {lane: row["executed_block"] for lane, row in statuses.items() if row["executed_block"] is not None}


def limits_key(protocol: str) -> str:
    """Return the table of ``[chains.<lane>]`` that holds a protocol's limits."""
    return find_limits(protocol).key


def input_encoder(protocol: str) -> Callable[[str, Mapping[str, Any]], bytes]:
    """Return a function of an input topic and a record in JSON form that encodes the record of a protocol's chain."""
    codec = codec_of([RuntimePlan(protocol)])

    def encoded(topic: str, record: Mapping[str, Any]) -> bytes:
        return encode_input(codec, INPUT_TOPICS[topic], record, protocol)

    return encoded


def console_beside(config: Config, *, open_browser: bool) -> RunningConsole:
    """Return the web console, started by its context manager, on the usual port or, if that is taken, on any. Raises `UserError`."""
    from validator.cli.console import LISTEN, running_console, show_in_browser

    try:
        running = running_console(config, LISTEN)
    except UserError:
        running = running_console(config, "127.0.0.1:0")
    if open_browser:
        show_in_browser(running.url)
    return running


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
