# SPDX-License-Identifier: Apache-2.0
"""The public API for commands of plugins: entry points of group ``validator.commands``, each a `typer.Typer`.

`run_plugin_job` runs a plugin's job (`validator.plugin.job_api`) as `validator run` runs the lanes. The rest reads the configuration, reads
committed records, and sends records.
"""

from __future__ import annotations

import typer

from validator.cli.common import ConfigPath, Json, kafka_table, say, terminated_as_interrupted
from validator.cli.job_log import log_printer
from validator.cli.progress import jar_progress
from validator.cli.run import TOPICS_S_MAX, wait_for_job
from validator.config import Config, load_config
from validator.errors import UserError
from validator.kafka.jars import ensure_jars
from validator.kafka.reader import POLL_S, TopicReader, TopicRecord
from validator.kafka.topics import wait_for_topics
from validator.service.job import JobProcess
from validator.service.plugin_job import configured_job, create_job_topics, of_job
from validator.service.sender import RecordSender

__all__ = [
    "POLL_S",
    "Config",
    "ConfigPath",
    "Json",
    "RecordSender",
    "TopicReader",
    "TopicRecord",
    "UserError",
    "configured_job",
    "connected",
    "run_plugin_job",
    "say",
    "terminated_as_interrupted",
]


def connected(config_path: ConfigPath) -> Config:
    """Return the configuration with the address of its Kafka, or of the embedded broker, which must be running. Raises `UserError`."""
    config = load_config(config_path)
    return config.model_copy(update={"kafka": kafka_table(config)})


def run_plugin_job(config: Config, name: str, *, as_json: bool, rebuild: bool = False) -> None:
    """Create the missing topics of a plugin's job, and run it until Ctrl-C or SIGTERM. Raises `UserError`, ``typer.Exit`` with its code."""
    if rebuild:
        config = config.model_copy(update={"job": config.job.model_copy(update={"rebuild": True})})
    job = configured_job(config, name)
    wait_for_topics(config.kafka, prefix=config.topics.prefix, patience_s=TOPICS_S_MAX)
    create_job_topics(config, job)
    with jar_progress() as progress:
        ensure_jars("spark", progress=progress)
    process = JobProcess(of_job(config, name), log_printer(as_json=as_json), plugin=name)
    with terminated_as_interrupted():
        process.start()
        code = wait_for_job(process)
    raise typer.Exit(code)
