# SPDX-License-Identifier: Apache-2.0
"""`validator run`: runs only the job."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Final

import typer

from validator import exit_codes
from validator.cli.common import (
    AcceptChange,
    ConfigPath,
    Rebuild,
    kafka_table,
    load_job_config,
    terminated_as_interrupted,
)
from validator.cli.job_log import log_printer
from validator.errors import Unavailable
from validator.job.process import JobProcess
from validator.kafka.topics import wait_for_topics

TOPICS_S_MAX: Final = 3.0
"""Seconds to wait until every broker knows topics that were just created."""


def run(
    config_path: ConfigPath = None,
    rebuild: Rebuild = False,
    accept_change: AcceptChange = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the job's log unchanged, as JSON lines.")] = False,
) -> None:
    """Run the job on the configured Kafka, or on the embedded broker if that is running, until Ctrl-C or SIGTERM.

    The topics must exist: create them with `validator topics create`. The log goes to standard error. While Kafka is away the job
    waits, as long as `[job] give_up_after` says. When stopped, the job completes its
    batch first; the next start continues there. Exit code 0 if it was stopped, 2 if its configuration or environment is wrong, 3 if it
    stopped by itself to avoid losing data or was killed, 70 if it failed.
    """
    accepted = accept_change or []
    config = load_job_config(config_path, rebuild=rebuild, accepted=accepted)
    config = config.model_copy(update={"kafka": kafka_table(config)})
    with suppress(Unavailable):  # the job waits for Kafka, and says so
        wait_for_topics(config.kafka, prefix=config.topics.prefix, patience_s=TOPICS_S_MAX)
    job = JobProcess(config, log_printer(as_json=as_json), accepted)
    with terminated_as_interrupted():
        code = run_job(job)
    raise typer.Exit(code)


def run_job(job: JobProcess) -> int:
    """Start the job, wait for its end, and return the exit code. Ctrl-C stops the job in order, a second Ctrl-C kills it.

    Raises `UserError` as `JobProcess.start` and `JobProcess.wait` do.
    """
    try:
        job.start()
        return job.wait()
    except KeyboardInterrupt:
        try:
            job.stop()
        except KeyboardInterrupt:
            job.kill()
            return exit_codes.INTERRUPTED
        return exit_codes.OK
