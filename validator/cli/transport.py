# SPDX-License-Identifier: Apache-2.0
"""`validator transport`: runs plugins that move records in and out by other means than Kafka, each in a separate process."""

from __future__ import annotations

import signal
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from validator import exit_codes
from validator.cli.common import ConfigPath, kafka_table, say
from validator.config import load_config
from validator.service.transport import choose_transport, record_forms, run_transport

if TYPE_CHECKING:
    from types import FrameType

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Run transports: plugins that bring records in and take records out.",
)


@app.callback()
def _group() -> None:
    """Make typer keep the name of the only command."""


@app.command()
def run(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The plugin's name, or PLUGIN.TRANSPORT if it has several transports."),
    ],
    config_path: ConfigPath = None,
) -> None:
    """Run a transport, configured by `[transports.NAME]`, until it ends or until Ctrl-C or SIGTERM.

    A signal asks it to end, which it does once it has delivered what it holds; a second signal ends it at once. At its next start it gets
    the records again that it received but did not acknowledge. It writes to the input topics, and reads the output topics that it names in
    the consumer group `<prefix>transport.NAME`. Exit code 0 if it ended, 2 if it, its configuration or Kafka has a problem.
    """
    config = load_config(config_path)
    chosen = choose_transport(config, name)
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        say(f"transport {chosen.name}: {chosen.plugin}")
        run_transport(chosen, kafka_table(config), config.topics.prefix, stop, record_forms(config))
    except KeyboardInterrupt:
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
