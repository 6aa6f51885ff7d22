# SPDX-License-Identifier: Apache-2.0
"""`validator run`: the job alone."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from validator import exit_codes
from validator.cli.common import ConfigPath, Rebuild, kafka_table, load_job_config, terminated_as_interrupted
from validator.cli.job_log import log_printer
from validator.cli.progress import jar_progress
from validator.kafka.jars import ensure_jars
from validator.kafka.topics import wait_for_topics
from validator.service.job import JobProcess

TOPICS_S_MAX: Final = 3.0
"""Seconds for topics that were created just now to be known to every broker."""


def run(
    config_path: ConfigPath = None,
    rebuild: Rebuild = False,
    as_json: Annotated[bool, typer.Option("--json", help="Pass on the job's log as it is: JSON lines.")] = False,
) -> None:
    """Run the job on the Kafka of the configuration (or on the embedded broker, if it runs) until Ctrl-C or SIGTERM.

    The topics must be there: `validator topics create` makes them. The log goes to standard error. A job that is stopped ends its batch
    first; the next start continues where it stopped. Exit code 0 when it was stopped, 2 if something is wrong with its configuration or
    surroundings, 3 if it stopped by itself so as to lose nothing, 70 if it failed.
    """
    config = load_job_config(config_path, rebuild=rebuild)
    config = config.model_copy(update={"kafka": kafka_table(config)})
    wait_for_topics(config.kafka, prefix=config.topics.prefix, patience_s=TOPICS_S_MAX)
    with jar_progress() as progress:
        ensure_jars("spark", progress=progress)
    job = JobProcess(config, log_printer(as_json=as_json))
    with terminated_as_interrupted():
        job.start()
        code = wait_for_job(job)
    raise typer.Exit(code)


def wait_for_job(job: JobProcess) -> int:
    """Wait until the job ends or Ctrl-C; stop it then, at once on a second Ctrl-C. Return the exit code."""
    try:
        return job.wait()
    except KeyboardInterrupt:
        try:
            job.stop()
        except KeyboardInterrupt:
            job.kill()
            return exit_codes.INTERRUPTED
        return exit_codes.OK
