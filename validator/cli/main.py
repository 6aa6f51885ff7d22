# SPDX-License-Identifier: Apache-2.0
"""The `validator` command: a table of sub-commands, each imported only when it runs.

`validator --help` imports no heavy package except typer. To add a sub-command, add a line to `COMMANDS`; its target is a `typer.Typer` or a
function that typer can read.
"""

from __future__ import annotations

import ast
import errno
import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from validator import __version__, exit_codes
from validator.errors import GivenUp, PluginFailed, UserError, in_one_line

if TYPE_CHECKING:
    from collections.abc import Callable

GROUPS: dict[str, tuple[str, ...]] = {
    "Start here": ("demo", "init", "up"),
    "Data": ("submit", "watch", "dead-letters", "export", "schemas", "topics"),
    "Ask": (
        "lanes",
        "state",
        "dry-run",
        "what-if",
        "audit",
        "compare",
        "message",
        "messages-of",
        "console",
        "serve",
        "explain",
        "rules",
        "replay",
        "prove",
        "verify",
    ),
    "Operate": ("run", "health", "broker", "jars"),
    "Plugins": ("plugins", "transport"),
}
"""The sections of the help page. Commands of plugins are in the last one, unless a section names them."""

# name -> ("module:attribute", help), in the order of the help page
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("validator.cli.init:init", "Write a configuration with two paras, and sample records for them."),
    "up": ("validator.cli.run:up", "Start a broker if none is configured, the topics and the job; Ctrl-C stops them."),
    "submit": ("validator.cli.submit:submit", "Validate JSON lines of one kind and send them to their topic."),
    "watch": ("validator.cli.watch:watch", "Show an output topic as a live table or as JSON."),
    "dead-letters": (
        "validator.cli.dead_letters:app",
        "List and show records that no block will take; replay them once fixed.",
    ),
    "export": (
        "validator.cli.export:export",
        "Write a lane's recorded inputs to files, for what-if, audit and submit.",
    ),
    "schemas": ("validator.cli.schemas:app", "List, show, check and register the Avro schemas."),
    "topics": ("validator.cli.topics:app", "Create and list the topics."),
    "lanes": ("validator.cli.lanes:app", "Show each lane's progress and what it waits for; import a lane's state."),
    "state": (
        "validator.cli.state:app",
        "Show a lane's state from the job's checkpoint, or verify it against the topics.",
    ),
    "dry-run": (
        "validator.cli.dry_run:dry_run",
        "Ask what a lane would say to a candidate now: all violations, and what would be left.",
    ),
    "what-if": (
        "validator.cli.what_if:what_if",
        "Replay a lane's recorded inputs under another configuration, and show which verdicts differ.",
    ),
    "audit": ("validator.cli.audit:audit", "Check a lane's whole recorded history, or compare two deployments."),
    "compare": (
        "validator.cli.compare:compare",
        "Compare the verdicts or dispatches on Kafka, or in a file, with expected ones.",
    ),
    "message": ("validator.cli.messages:message", "Show where a message is, and why it waits."),
    "messages-of": ("validator.cli.messages:messages_of", "List a para's messages, those first that wait longest."),
    "console": ("validator.cli.console:console", "Serve local web pages that show the lanes live."),
    "serve": (
        "validator.cli.serve:serve",
        "Serve what the topics hold over HTTP: JSON, server-sent events, OpenAPI.",
    ),
    "explain": (
        "validator.cli.rules:explain",
        "Explain a rule, reading, invariant or error by its code, kind or clause.",
    ),
    "rules": (
        "validator.cli.rules:app",
        "List the rules that a chain can choose by height; show one profile, or the difference of two.",
    ),
    "replay": ("validator.cli.replay:replay", "Run conformance traces through the rules, without Kafka or Spark."),
    "prove": ("validator.cli.proofs:prove", "Create a proof that a protocol offers outside of blocks, as JSON."),
    "verify": ("validator.cli.proofs:verify", "Verify such a proof, from any source."),
    "run": ("validator.cli.run:run", "Run only the job, on the configured Kafka."),
    "health": ("validator.cli.health:health", "Say whether a running job is healthy, for supervisors and containers."),
    "broker": ("validator.cli.broker:app", "Start, stop and inspect the embedded Kafka broker."),
    "jars": ("validator.cli.broker:jars", "Fetch the broker's jars ahead of time."),
    "plugins": ("validator.cli.plugins:app", "List, show, check, lock and pack plugins; start a new one."),
    "transport": (
        "validator.cli.transport:app",
        "Run a transport plugin, which moves records in and out by other means than Kafka.",
    ),
}


PLUGIN_COMMANDS = "validator.commands"
"""Entry points of this group are sub-commands: a `typer.Typer` each, listed after those of the product, whose names they cannot take."""


def _plugin_commands() -> dict[str, EntryPoint]:
    found = sorted(entry_points(group=PLUGIN_COMMANDS), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found if entry.name not in COMMANDS}


def _plugin_help(entry: EntryPoint) -> str:
    """Return the first line of the module behind a command, after "`validator NAME`: "; the module is not imported."""
    package, *inner = entry.module.split(".")
    spec = find_spec(package)
    folder = None if spec is None or not spec.submodule_search_locations else spec.submodule_search_locations[0]
    with suppress(OSError, SyntaxError, ValueError):
        source = Path(folder or "", *inner).with_suffix(".py").read_text(encoding="utf-8") if folder and inner else ""
        first = (
            (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].partition(f"`validator {entry.name}`: ")[2]
        )
        if first:
            return first[0].upper() + first[1:]
    summary = None if entry.dist is None else entry.dist.metadata.json.get("summary")
    return str(summary or f"Commands of the plugin {entry.name}.")


def _target(name: str) -> typer.Typer | Callable[..., Any]:
    """Import what is behind a name. Raises `UserError` if a plugin's commands cannot be imported."""
    if name in COMMANDS:
        module, _, attribute = COMMANDS[name][0].partition(":")
        return getattr(import_module(module), attribute)  # type: ignore[no-any-return]
    entry = _plugin_commands()[name]
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:  # a plugin's module may raise anything
        raise UserError(
            f"plugin command {name}: importing {entry.value} failed ({in_one_line(error)}): fix or remove the plugin"
        ) from error
    if not callable(found):
        raise UserError(
            f"plugin command {name}: expected a typer.Typer or a function as {entry.value}, found {type(found).__name__}"
        )
    return found  # type: ignore[no-any-return]


def _load(name: str) -> TyperCommand | TyperGroup:
    """Import the sub-command behind a name. Raises `UserError` if a plugin's cannot be imported, or is none."""
    target = _target(name)
    if not isinstance(target, typer.Typer):
        wrapper = typer.Typer(add_completion=False, rich_markup_mode="markdown")  # reflows paragraphs
        wrapper.command(name)(target)
        target = wrapper
    try:
        command: TyperCommand | TyperGroup = typer.main.get_command(target)  # type: ignore[assignment]
    except Exception as error:  # a Typer without commands, or a function that typer cannot read
        if name in COMMANDS:
            raise
        raise UserError(
            f"plugin command {name}: it is no command ({in_one_line(error)}): fix or remove the plugin"
        ) from error
    command.name = name
    return command


def _expected(cause: BaseException) -> str | None:
    """Return what was expected of an option's value and what was found; None if typer's own words stand."""
    from pydantic import ValidationError  # typer has imported it to find the error

    from validator.config.explain import explain

    if not isinstance(cause, ValidationError):
        return None
    first = cause.errors(include_url=False)[0]
    return explain({**first, "loc": ("value",)}).removeprefix("value: ")


class LazyGroup(TyperGroup):
    """Lists the table, imports a sub-command when it is called, and prints a `UserError` in one line."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        texts = {name: text for name, (_, text) in COMMANDS.items()}
        texts |= {name: _plugin_help(entry) for name, entry in _plugin_commands().items()}
        self.commands = {name: TyperCommand(name=name, short_help=text) for name, text in texts.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, command, rest
        try:
            return name, _load(name), rest
        except UserError:
            if ctx.resilient_parsing:  # a shell that completes: there is nothing to offer
                return name, command, rest
            raise

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.commands)  # in the table's order

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        listed = {name for names in GROUPS.values() for name in names}
        left = [name for name in self.commands if name not in listed]
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            shown = [name for name in names if name in self.commands] + (
                left if title == next(reversed(GROUPS)) else []
            )
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self.commands[name].short_help or "") for name in shown])

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        try:
            return super().make_context(*arguments, **extra)
        except BrokenPipeError:  # the help page; typer would exit with 1, which says that a command's answer is no
            raise _pipe_closed() from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _pipe_closed() from None
        except typer.BadParameter as error:
            if error.__cause__ is not None:
                error.message = _expected(error.__cause__) or error.message
            raise
        except UserError as error:
            code = exit_codes.STOPPED if isinstance(error, GivenUp) else exit_codes.USER_ERROR
            raise _refused(ctx, str(error), code) from None
        except PluginFailed as error:
            raise _refused(ctx, str(error), exit_codes.INTERNAL_ERROR) from None
        except OSError as error:
            if error.filename is None or error.errno not in _REFUSED_FILES:
                raise
            raise _refused(ctx, f"{error.filename}: {error.strerror}", exit_codes.USER_ERROR) from None


def _refused(ctx: Any, text: str, code: int) -> typer.Exit:
    """Print an error in one line, with its traceback if that is wanted, and return how the command ends."""
    from validator.visible import printable_lines  # only errors need it

    if ctx.params.get("verbose"):
        traceback.print_exc()
    print(f"validator: {printable_lines(text)}", file=sys.stderr)  # noqa: T201 - rich would wrap the line
    return typer.Exit(code)


app = typer.Typer(
    name="validator",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich markup for this page would cost 100 ms of imports, more than all the rest
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Validate a relay chain's message traffic as it streams: candidates and channel requests in, verdicts out."""


_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""What a write to standard output says if that is a file on a full disk, for example."""

_REFUSED_FILES: Final = (
    *_UNWRITABLE, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP,
)  # fmt: skip
"""Why the system refuses a file or folder that is named: the environment is wrong, not the program."""


def main() -> None:
    """Run the command line. This is the entry point of the installed `validator`. A bug prints its traceback and has its own exit code."""
    sys.stdout, sys.stderr = _usable(sys.stdout), _usable(sys.stderr)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - Python's own exit code would be 1, which says that a command's answer is no
        sys.exit(_code_of(error))


def _code_of(error: Exception) -> int:
    """Say what has ended the command, and return its exit code."""
    if isinstance(error, BrokenPipeError):
        return _pipe_closed().exit_code
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in _UNWRITABLE:
        traceback.print_exception(error)
        return exit_codes.INTERNAL_ERROR
    _drop_output()
    typer.echo(f"validator: output cannot be written: {error.strerror}", err=True)
    return exit_codes.USER_ERROR


def _pipe_closed() -> typer.Exit:
    """Return how a command ends whose output nobody reads any more: `head` has enough."""
    _drop_output()
    return typer.Exit(exit_codes.PIPE_CLOSED)


def _drop_output() -> None:
    """Let Python's last flush of standard output succeed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _usable(stream: TextIO | None) -> TextIO:
    """Return a stream that takes every character; instead of a closed one, a stream that drops them."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream
