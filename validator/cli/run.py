# SPDX-License-Identifier: Apache-2.0
"""`validator run` and `validator up`: the job alone, or with its broker and topics."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from validator import exit_codes
from validator.cli.broker import Port
from validator.cli.common import (
    ConfigPath,
    connected,
    embedded_broker,
    kafka_table,
    load_job_config,
    say,
    terminated_as_interrupted,
)
from validator.cli.job_log import log_printer
from validator.cli.progress import jar_progress
from validator.errors import Unavailable, UserError
from validator.job.deployment import JOB_RESTARTS_MAX, Service
from validator.job.process import JobProcess
from validator.kafka.jars import ensure_jars
from validator.kafka.topics import wait_for_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from validator.config import Config
    from validator.job.process import Event


Rebuild = Annotated[
    bool,
    typer.Option(
        "--rebuild",
        help="Start without a checkpoint on topics that already hold verdicts: execute the inputs again, emit only what is missing.",
    ),
]
AcceptChange = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-change",
        metavar="LANE:WHAT",
        help="Accept one change since the last start: LANE:genesis, LANE:removed or LANE:BLOCK (docs/changing.md). May be repeated.",
    ),
]


TOPICS_S_MAX: Final = 3.0
"""Seconds to wait until every broker knows topics that were just created."""


def run(
    config_path: ConfigPath = None,
    rebuild: Rebuild = False,
    accept_change: AcceptChange = None,
    job_name: Annotated[
        str | None,
        typer.Option(
            "--job", help="Run this job of a plugin, which may have a table `[jobs.<name>]`, instead of the lanes."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the job's log unchanged, as JSON lines.")] = False,
) -> None:
    """Run the job on the configured Kafka, or on the embedded broker if that is running, until Ctrl-C or SIGTERM.

    The topics must exist: create them with `validator topics create`. The log goes to standard error. While Kafka is away the job
    waits, as long as `[job] give_up_after` says. When stopped, the job completes its
    batch first; the next start continues there. Exit code 0 if it was stopped, 2 if its configuration or environment is wrong, 3 if it
    stopped by itself to avoid losing data or was killed, 70 if it failed.
    """
    accepted = accept_change or []
    if job_name is not None:
        from validator.cli.command_api import run_plugin_job

        if accepted:
            raise UserError("--accept-change: expected only without --job: it is for changes of lanes")
        run_plugin_job(connected(config_path), job_name, as_json=as_json, rebuild=rebuild)
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


def up(
    config_path: ConfigPath = None,
    rebuild: Rebuild = False,
    accept_change: AcceptChange = None,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help=f"Start the job again if it was killed or stopped by itself, at most {JOB_RESTARTS_MAX} times without a completed batch.",
        ),
    ] = False,
    keep_broker: Annotated[
        bool, typer.Option("--keep-broker", help="Leave the broker running, whatever ends the job.")
    ] = False,
    port: Port = None,
    as_json: Annotated[bool, typer.Option("--json", help="Log only JSON lines.")] = False,
) -> None:
    """Start a broker if none is configured, create missing topics, and run the job. Ctrl-C stops the job, then the broker.

    Jobs of plugins that have a table `[jobs.<name>]` run next to it, unless they have a separate command. A broker that was already running
    is left running. Its data and the job's state are kept, so that the next start continues. Exit code 0 if it was stopped, 2 if the
    configuration or the environment is wrong, 3 if the job stopped by itself to avoid losing data or was killed, 70 if it failed.
    """
    accepted = accept_change or []
    config = load_job_config(config_path, rebuild=rebuild, accepted=accepted)
    if port is not None and config.kafka.get("bootstrap.servers"):
        raise UserError(
            f"--port: expected only without [kafka] bootstrap.servers, found {config.kafka['bootstrap.servers']}, which is used instead"
        )
    printer = log_printer(as_json=as_json)
    if not as_json:
        printer = _explaining(printer, lambda: _how_to_reach(service.config, config_path))
    service = service_of(config, printer, accepted, port)
    with terminated_as_interrupted():
        restarts_max = JOB_RESTARTS_MAX if restart else 0
        raise typer.Exit(_serve(service, restarts_max=restarts_max, keep_broker=keep_broker, as_json=as_json))


def service_of(
    config: Config, printer: Callable[[Event], None], accepted: Sequence[str] = (), port: int | None = None
) -> Service:
    """Return the job with its topics, and with the embedded broker, whose jars are fetched, if no other one is configured."""
    if config.kafka.get("bootstrap.servers"):
        return Service(config, None, printer, accepted)
    with jar_progress() as progress:
        ensure_jars(progress=progress)
    return Service(config, embedded_broker(port), printer, accepted)


def _explaining(printer: Callable[[Event], None], explain: Callable[[], str]) -> Callable[[Event], None]:
    """Return a printer that says, once the job is ready for the first time, how to reach it: until then it may refuse to start."""
    explained = False

    def print_event(event: Event) -> None:
        nonlocal explained
        printer(event)
        if event["event"] == "ready" and "job" not in event and not explained:
            explained = True
            say(explain())

    return print_event


def _serve(service: Service, *, restarts_max: int, keep_broker: bool, as_json: bool) -> int:
    try:
        service.start()
        return service.run(restarts_max)
    except KeyboardInterrupt:
        if not as_json:
            say("stopping after the current batch; another Ctrl-C or SIGTERM stops it at once")
        return exit_codes.OK
    finally:
        try:
            service.stop(keep_broker=keep_broker)
        except KeyboardInterrupt:
            service.kill_job()
            service.stop(keep_broker=keep_broker)
        if keep_broker and not as_json and service.broker is not None and service.broker.status().running:
            say("the broker is left running; stop it with `validator broker stop`")


def _how_to_reach(config: Config, config_path: Path | None) -> str:
    option = f" --config {config_path}" if config_path else ""
    prefix, lanes = config.topics.prefix, ", ".join(sorted(config.chains))
    return (
        f"Kafka at {config.kafka['bootstrap.servers']}; lanes {lanes}\n"
        f"  in   {prefix}blocks, {prefix}candidates, {prefix}channel-requests, {prefix}downward-messages\n"
        f"  out  {prefix}verdicts, {prefix}dispatches, {prefix}channel-events, {prefix}ingress-events, {prefix}headroom, "
        f"{prefix}receipts, {prefix}dead-letters, {prefix}lanes\n"
        f"  send:  validator submit{option} candidates candidates.jsonl\n"
        f"  watch: validator watch{option} verdicts --follow\n"
        f"         validator lanes{option}\n"
        "Press Ctrl-C to stop."
    )
