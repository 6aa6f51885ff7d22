# SPDX-License-Identifier: Apache-2.0
"""`validator up`: starts a broker if none is configured, the topics and the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from validator import exit_codes
from validator.cli.broker import Port, embedded_broker
from validator.cli.common import AcceptChange, ConfigPath, Rebuild, load_job_config, say, terminated_as_interrupted
from validator.cli.job_log import log_printer
from validator.cli.progress import jar_progress
from validator.errors import UserError
from validator.job.deployment import JOB_RESTARTS_MAX, Service
from validator.kafka.jars import ensure_jars

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from validator.config import Config
    from validator.job.process import Event


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

    A broker that was already running is left running. Its data and the job's state are kept, so that the next start continues. Exit code
    0 if it was stopped, 2 if the configuration or the environment is wrong, 3 if the job stopped by itself to avoid losing data or was
    killed, 70 if it failed.
    """
    accepted = accept_change or []
    config = load_job_config(config_path, rebuild=rebuild, accepted=accepted)
    embedded = not config.kafka.get("bootstrap.servers")
    if port is not None and not embedded:
        raise UserError(
            f"--port: expected only without [kafka] bootstrap.servers, found {config.kafka['bootstrap.servers']}, which is used instead"
        )
    if embedded:
        with jar_progress() as progress:
            ensure_jars(progress=progress)
    printer = log_printer(as_json=as_json)
    service = Service(
        config,
        embedded_broker(port) if embedded else None,
        printer if as_json else _explaining(printer, lambda: _how_to_reach(service.config, config_path)),
        accepted,
    )
    with terminated_as_interrupted():
        restarts_max = JOB_RESTARTS_MAX if restart else 0
        raise typer.Exit(_serve(service, restarts_max=restarts_max, keep_broker=keep_broker, as_json=as_json))


def _explaining(printer: Callable[[Event], None], explain: Callable[[], str]) -> Callable[[Event], None]:
    """Return a printer that says, once the job is ready for the first time, how to reach it: until then it may refuse to start."""
    explained = False

    def print_event(event: Event) -> None:
        nonlocal explained
        printer(event)
        if event["event"] == "ready" and not explained:
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
