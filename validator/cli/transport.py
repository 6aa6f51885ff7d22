# SPDX-License-Identifier: Apache-2.0
"""`validator transport`: runs plugins that move records in and out by other means than Kafka, each in a separate process."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from validator import exit_codes
from validator.cli.common import ConfigPath, kafka_table, say
from validator.config import load_config
from validator.errors import LeaseLost, Unavailable
from validator.plugin.limits import ENDING_S_MAX
from validator.transports.meter import measuring
from validator.transports.runner import TransportGroup, choose_transport, create_topics_of_jobs
from validator.transports.runner import run_transport as run_chosen_transport
from validator.waiting import Patience, Pause, wait_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from validator.config import Config
    from validator.transports.lease import Lease
    from validator.transports.runner import Chosen

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
    the consumer group `<prefix>transport.NAME`. Of several processes with one NAME, one is active; the others wait as standby and take over
    when it ends. If Kafka has not heard from it for too long, another process may have taken over: it delivers nothing more and begins
    again as standby. While Kafka is away it waits, as long as `[job] give_up_after` says. Exit code 0 if it ended, 2 if it, its
    configuration or Kafka has a problem, 3 if Kafka was away for too long.
    """
    run_transport(name, config_path)


def prepared(name: str, config: Config) -> tuple[Config, Chosen, TransportGroup]:
    """Return the configuration with Kafka's address, a transport, whose jobs have their topics then, and its group. Raises `UserError`."""
    chosen = choose_transport(config, name)
    config = config.model_copy(update={"kafka": kafka_table(config)})
    create_topics_of_jobs(config, chosen)
    return config, chosen, TransportGroup(config.kafka, config.topics.prefix, chosen.name)


def run_transport(
    name: str, config_path: Path | None, changed: Callable[[Config], Config] = lambda config: config
) -> bool:
    """Run a transport until it ends, or until Ctrl-C or SIGTERM; return whether a signal asked it to end.

    ``changed`` returns the configuration with what an option replaces. Raises `UserError`, `GivenUp`, ``typer.Exit``.
    """
    config, chosen, group = prepared(name, changed(load_config(config_path)))
    stop, ended = Event(), Event()

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    active = Event()

    def on_active(lease: Lease) -> None:
        active.set()
        say(f"transport {chosen.name}: active; {chosen.plugin}")
        Thread(target=_end_if_lost, args=(lease, ended), daemon=True).start()

    def run_once() -> None:
        try:
            run_chosen_transport(
                chosen,
                group,
                stop,
                lambda name: say(f"transport {chosen.name}: standby; active is {name}"),
                on_active,
                partial(measuring, config, chosen.name, say, own=chosen.transport.metrics),
            )
        except Unavailable as error:
            if active.is_set():  # what the plugin holds may be half done: it begins again as after any other end
                raise LeaseLost(str(error)) from error
            raise

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        wait_out(run_once, Patience(config.job.give_up_after), partial(_say_pause, chosen.name), stop.is_set)
    except LeaseLost as error:
        ended.set()
        _begin_again(str(error))
    except Unavailable:
        if not stop.is_set():
            raise
    except KeyboardInterrupt:
        raise typer.Exit(exit_codes.INTERRUPTED) from None
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)
    return stop.is_set()


def _say_pause(name: str, pause: Pause) -> None:
    limit = f"gives up after {pause.give_up_after_s:g} s"
    say(f"transport {name}: {pause.reason}; tries again in {pause.seconds:.0f} s, {limit}")


def _end_if_lost(lease: Lease, ended: Event) -> None:
    """Begin again if the transport does not end by itself after it has lost its lease."""
    lease.lost.wait()
    if not ended.wait(ENDING_S_MAX):
        _begin_again(str(lease.reason))


def _begin_again(reason: str) -> NoReturn:
    """Replace this process by a new one, which waits as standby.

    All threads, connections and memory of the former active process end with it, as if a supervisor had restarted it: nothing that is left
    of it can deliver. The new one becomes a member of the group under a new id.
    """
    say(f"validator: {reason}; it begins again as standby")
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the arguments are this process's own
    except OSError as error:
        say(f"validator: {sys.executable}: {error.strerror}")
        os._exit(exit_codes.STOPPED)
