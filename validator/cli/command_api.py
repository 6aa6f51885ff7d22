# SPDX-License-Identifier: Apache-2.0
"""The public API for commands of plugins: entry points of group ``validator.commands``, each a `typer.Typer`.

`run_plugin_job` runs a plugin's job (`validator.plugin.job_api`) as `validator run` runs the lanes. The rest reads the configuration, reads
committed records, and sends records. `working` and `until_first` show on a terminal what takes a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer

from validator.cli.common import ConfigPath, Json, kafka_table, say, terminated_as_interrupted
from validator.cli.job_log import log_printer
from validator.cli.json_lines import parse as read_line
from validator.cli.progress import jar_progress, until_first, working
from validator.cli.run import TOPICS_S_MAX, wait_for_job
from validator.cli.table import VisibleConsole
from validator.config import Config, load_config
from validator.errors import UserError
from validator.kafka.jars import ensure_jars
from validator.kafka.reader import POLL_S, TopicReader, TopicRecord
from validator.kafka.topics import wait_for_topics
from validator.service.job import JobProcess
from validator.service.parked import lane_reports
from validator.service.plugin_job import configured_job, create_job_topics, of_job
from validator.service.sender import RecordSender
from validator.service.waiting import Patience, wait_out

__all__ = [
    "POLL_S",
    "Config",
    "ConfigPath",
    "Json",
    "RecordSender",
    "SideTask",
    "TopicReader",
    "TopicRecord",
    "UserError",
    "VisibleConsole",
    "configured_job",
    "connected",
    "executed_blocks",
    "read_line",
    "run_plugin_job",
    "say",
    "terminated_as_interrupted",
    "until_first",
    "working",
]


SIDE_TASK_END_S_MAX: Final = 5.0
"""Seconds that a side task may take to end; after that it is left alone."""


def connected(config_path: ConfigPath) -> Config:
    """Return the configuration with the address of its Kafka, or of the embedded broker, which must be running. Raises `UserError`."""
    config = load_config(config_path)
    return config.model_copy(update={"kafka": kafka_table(config)})


def executed_blocks(config: Config) -> dict[str, int]:
    """Return the last executed block of each lane that has one, as the lanes' job says it. Raises `UserError`."""
    statuses = lane_reports(config).statuses
    return {lane: row["executed_block"] for lane, row in statuses.items() if row["executed_block"] is not None}


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
    with jar_progress() as progress:
        ensure_jars("spark", progress=progress)
    process = JobProcess(of_job(config, name), log, plugin=name)
    with terminated_as_interrupted(), _running(side_task, config, log):
        process.start()
        code = wait_for_job(process)
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
