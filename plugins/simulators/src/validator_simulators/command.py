# SPDX-License-Identifier: Apache-2.0
"""`validator simulate`: write a seeded relay chain's traffic and the verdicts that a model expects; plot a network of message bodies."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from validator.cli.command_api import DEFAULT_PROTOCOL, LANE_PATTERN, UserError, to_toml, working
from validator_simulators import settings_of_profile
from validator_simulators.installed import chain_table, simulation_of
from validator_simulators.network.command import network

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES: Final = (
    "blocks", "channel-requests", "downward-messages", "candidates", "expected-verdicts", "expected-dispatches",
)  # fmt: skip

CONFIGURATION: Final = "validator.toml"
CHAIN: Final = "chain.json"

HEADER: Final = f"""\
# Written by `validator simulate`: the chain of the records in this folder. To run it: validator up --config {CONFIGURATION}
# Every other key has its default; without [kafka] the embedded broker is used.

"""


app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
app.command("network")(network)


@app.callback(invoke_without_command=True)
def simulate(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option(help="Directory to write to; created if missing. Overwrites nothing.")
    ] = None,
    to_stdout: Annotated[
        bool,
        typer.Option("--json", help='Write to standard output instead, one {"kind": ..., "record": ...} per line.'),
    ] = False,
    seed: Annotated[int, typer.Option(help="Same seed and settings, same bytes.")] = 1,
    blocks: Annotated[
        int | None, typer.Option(help="Number of blocks; by default 100, 400 with profile history.", show_default=False)
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            help="demo, real (45 paras, few messages), full (100 cores), ceiling (full of messages) or history (the rules change "
            "with height, as they did)."
        ),
    ] = "demo",
    violations: Annotated[float, typer.Option(min=0, max=1, help="Share of records that try to break a rule.")] = 0.1,
    protocol: Annotated[str, typer.Option(help="Rule set: the name of an installed protocol.")] = DEFAULT_PROTOCOL,
    lane: Annotated[str, typer.Option(help="Name of the relay chain.")] = "polkadot",
    preset: Annotated[
        str | None,
        typer.Option(
            help="Named limits, if the protocol has any: polkadot (as of 2021-09, with requests that expire; the default) "
            "or tight (every limit within reach)."
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            help="Channels, by a name that the protocol knows: recorded ones of polkadot (the default) or kusama, or `fixed` ones."
        ),
    ] = None,
    paras: Annotated[int | None, typer.Option(help="Number of paras, the busiest first.")] = None,
    candidates_per_block: Annotated[int | None, typer.Option(help="Number of candidates per block.")] = None,
    session_length_blocks: Annotated[int | None, typer.Option(help="Number of blocks per session.")] = None,
    first_block: Annotated[int, typer.Option(help="Number of the first block.")] = 1,
    enactment: Annotated[
        str, typer.Option(help="When candidates take effect: immediate, or on-inclusion (as block records list them).")
    ] = "immediate",
    notifications: Annotated[bool, typer.Option(help="Queue downward notifications of channel requests.")] = False,
    unlimited_balances: Annotated[
        bool, typer.Option(help="Do not limit balances; track only reserved amounts.")
    ] = False,
) -> None:
    """Write a seeded relay chain's traffic, and the verdicts expected by a model that shares no code with the core.

    Writes blocks.jsonl, channel-requests.jsonl, downward-messages.jsonl and candidates.jsonl for `validator submit`,
    expected-verdicts.jsonl and expected-dispatches.jsonl for `validator compare`, validator.toml (the chain as a configuration) and
    chain.json (the same as JSON) to the directory. The sub-command `network` simulates message bodies off the relay chain.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_of_the_chain(context)
        return
    if (out is None) == (not to_stdout):
        raise UserError("simulate: expected either --out DIR or --json, found " + ("both" if to_stdout else "neither"))
    if not re.fullmatch(LANE_PATTERN, lane):
        raise UserError(f"--lane: expected a name of lower-case letters, digits, '.', '_' and '-', found {lane!r}")
    simulation = simulation_of(
        protocol,
        settings_of_profile(
            profile,
            seed=seed,
            blocks=blocks,
            lane=lane,
            first_block=first_block,
            preset=preset,
            topology=topology,
            paras=paras,
            candidates_per_block=candidates_per_block,
            violation_share=violations,
            session_length_blocks=session_length_blocks,
            enactment=enactment,
            notifications=notifications,
            unlimited_balances=unlimited_balances,
        ),
    )
    if out is None:
        try:
            _write_lines(simulation, sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` has ended; the interpreter's flush at exit must not meet the broken pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    else:
        try:
            with working(f"simulating {simulation.settings.blocks} blocks"):
                counts = _write_files(simulation, out)
        except OSError as error:
            raise UserError(f"{error.filename or out}: cannot be written: {error.strerror}") from error
        typer.echo(f"{out}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()), err=True)


def _refuse_options_of_the_chain(context: typer.Context) -> None:
    """Raise `UserError` if an option stands before the sub-command, which would ignore it."""
    sources = {each.opts[0]: context.get_parameter_source(each.name or "") for each in context.command.params}
    given = [option for option, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        command = f"simulate {context.invoked_subcommand}"
        raise UserError(f"{command}: expected every option after it, found {', '.join(given)} before it")


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


def _write_lines(simulation: Any, stream: TextIO) -> None:
    chain = simulation.chain()
    stream.write(_line({"kind": "chain", "record": chain}))
    for block in simulation.blocks():
        for kind, record in block.records:
            stream.write(_line({"kind": kind, "record": record}))
        for kind, expected in _expected(chain, block):
            stream.write(_line({"kind": kind, "record": expected}))


def _write_files(simulation: Any, out: Path) -> dict[str, int]:
    chain = simulation.chain()
    for path in (out / name for name in (CONFIGURATION, CHAIN, *(f"{kind}.jsonl" for kind in FILES))):
        if path.exists() or path.is_symlink():
            raise UserError(f"{path}: expected no such file, found one; nothing was written")
    out.mkdir(parents=True, exist_ok=True)
    (out / CONFIGURATION).write_text(
        HEADER + to_toml({"chains": {chain["lane"]: chain_table(chain)}}), encoding="utf-8"
    )
    (out / CHAIN).write_text(json.dumps(chain, indent=2) + "\n", encoding="utf-8")
    counts = dict.fromkeys(FILES, 0)
    with ExitStack() as stack:
        files = {
            kind: stack.enter_context((out / f"{kind}.jsonl").open("w", encoding="utf-8", newline="\n"))
            for kind in FILES
        }
        for block in simulation.blocks():
            for kind, record in [*block.records, *_expected(chain, block)]:
                files[kind].write(_line(record))
                counts[kind] += 1
    return counts


def _expected(chain: dict[str, Any], block: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the expected verdicts and dispatches of a block, each with the name of its file."""
    for verdict in block.expected:
        yield "expected-verdicts", verdict
    failing = chain.get("ump_failing_messages", ())
    for index, (para, payload) in enumerate(block.dispatched):
        place = {"lane": chain["lane"], "block": block.block, "index": index}
        outcome = "failed" if payload in failing else "ok"
        yield "expected-dispatches", {**place, "para_id": para, "payload": payload, "outcome": outcome}
