# SPDX-License-Identifier: Apache-2.0
"""`validator state show|verify`: shows and verifies a lane's state in the job's checkpoint, while the job may be running."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from validator import exit_codes
from validator.cli.common import ConfigPath, Json, kafka_table, say, terminated_as_interrupted
from validator.cli.progress import counting, working
from validator.cli.table import print_table
from validator.config import load_config
from validator.config.unknown import chain_of
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.lanes.configured import configured_codec, definition_beside, job_directory
from validator.plugin.pack import use_artefacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.ask.state import RestoredState
    from validator.config import Config
    from validator.lanes.stored import StateExport

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Show a lane's state from the job's checkpoint, or verify it against the topics. The job may be running.",
)


@app.command()
def show(
    lane: Annotated[
        str | None, typer.Option(help="The lane; may be left out if the configuration has a single chain.")
    ] = None,
    para: Annotated[
        int | None, typer.Option(min=0, max=U32_MAX, help="Only this para's state, with its channels.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option(metavar="S,R", help="Only the channel from para S to para R, with its messages.")
    ] = None,
    plugin: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this plugin's handlers keep.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of a plugin's entries to show; 0: all.")] = 20,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Show a lane's state after the job's last committed batch: a summary, one para, one channel, or what a plugin keeps.

    Reading does not disturb a running job. With --json, prints the state keys of the conformance format; for a complete lane this is a
    STATE.json for `validator lanes import`.
    """
    from validator.ask.state import document, plugin_document, restore
    from validator.cli.state_tables import channel_tables, lane_tables, para_tables, plugin_tables

    given = [
        name for name, value in (("--para", para), ("--channel", channel), ("--plugin", plugin)) if value is not None
    ]
    if len(given) > 1:
        raise UserError(f"expected one of --para, --channel and --plugin, found {' and '.join(given)}")
    channel_id = None if channel is None else _channel_id(channel)
    config = load_config(config_path)
    lane = _only_lane(config) if lane is None else lane
    with _stored(config, [lane]) as stored:
        restored = restore(stored, lane, job_directory(config))
    if as_json:
        shown = document(restored, para, channel_id) if plugin is None else plugin_document(restored, plugin, limit)
        sys.stdout.write(json.dumps(shown) + "\n")
        return
    if plugin is not None:
        tables = plugin_tables(restored, plugin, limit)
    elif channel_id is not None:
        tables = channel_tables(restored, channel_id)
    elif para is not None:
        tables = para_tables(restored, para)
    else:
        tables = lane_tables(restored)
    print_table(tables)


@app.command()
def verify(
    lane: Annotated[str | None, typer.Option(help="Only this lane. Default: every configured lane.")] = None,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Rebuild lanes from the topics, up to the offsets that the checkpoint's last batch consumed, and compare them with the checkpoint.

    Compares the executed block, the record counts, the state root, the page of every para, waiting records, the receipts of all blocks, and
    the last receipts with those on the topic. Exit code 0 if everything is the same, 1 if not.
    """
    from validator.ask.state import restore

    config = load_config(config_path)
    if lane is not None:
        chain_of(config.chains, lane, "--lane: its first block is unknown: ")
    if not config.chains:
        raise UserError("no chain is configured: expected a table [chains.<lane>]")
    config = config.model_copy(update={"kafka": kafka_table(config)})
    same = True
    with _stored(config, [lane] if lane else sorted(config.chains)) as stored:
        names = [lane] if lane else [name for name in stored.lanes if name in config.chains]
        for name in stored.lanes if lane is None else ():
            if name not in config.chains:
                say(f"lane {name} is skipped: it is not configured, so its first block is unknown")
        if not names:
            raise UserError("none of the configured lanes is in the checkpoint: no record for them has arrived yet")
        for name in names:
            same = _verify(config, restore(stored, name), as_json=as_json) and same
    raise typer.Exit(exit_codes.OK if same else exit_codes.DISAGREEMENT)


def _verify(config: Config, restored: RestoredState, *, as_json: bool) -> bool:
    from validator.cli.state_tables import check_tables, differing
    from validator.history.verification import compare, rebuild

    name = restored.name
    definition = definition_beside(config, name)
    with counting(f"lane {name}: executing its inputs") as progress:
        rebuilt = rebuild(config.kafka, config.topics.prefix, configured_codec(config), definition, restored, progress)
    checks = compare(restored, rebuilt, config.kafka, config.topics.prefix)
    same = all(check.same for check in checks)
    reconfigured = definition.runtime_digest != restored.head.runtime_digest
    if as_json:
        result = {
            "lane": name,
            "ok": same,
            "batch": restored.batch,
            "executed_block": restored.processor.lane.executed_block,
            "records": rebuilt.records,
            "reconfigured": reconfigured,
            "cut": rebuilt.cut,
            "checks": [asdict(check) for check in checks],
        }
        sys.stdout.write(json.dumps(result) + "\n")
        return same
    print_table(check_tables(checks))
    if reconfigured:
        say(f"lane {name}: the configuration differs from the one that its state was stored with")
    if rebuilt.cut:
        say(
            f"lane {name}: retention has removed the first records of {', '.join(rebuilt.cut)}, which cannot be counted any more"
        )
    where = f"after block {restored.processor.lane.executed_block}, batch {restored.batch}"
    if same:
        sys.stdout.write(f"OK: lane {name} {where} equals the lane rebuilt from {rebuilt.records:,} records\n")
    else:
        words = "".join(f"  {differing(check)}\n" for check in checks if not check.same)
        sys.stdout.write(
            f"DIFFERENT: lane {name} {where} differs from the lane rebuilt from {rebuilt.records:,} records\n{words}"
        )
    return same


def _only_lane(config: Config) -> str:
    """Return the single configured chain. Raises `UserError`."""
    if len(config.chains) != 1:
        known = ", ".join(sorted(config.chains)) or "none"
        raise UserError(f"--lane: expected one of the configured chains ({known}), found none")
    return next(iter(config.chains))


def _channel_id(text: str) -> tuple[int, int]:
    ends = text.split(",")
    if len(ends) != 2 or not all(end.isascii() and end.isdecimal() and int(end) <= U32_MAX for end in ends):
        raise UserError(f"--channel: expected SENDER,RECIPIENT, two para ids, found {text!r}")
    return int(ends[0]), int(ends[1])


@contextmanager
def _stored(config: Config, lanes: list[str]) -> Iterator[StateExport]:
    from validator.ask.state import stored_lanes

    use_artefacts(config.plugins.artefacts)
    with terminated_as_interrupted(), ExitStack() as stack:
        with working("reading the checkpoint"):
            stored = stack.enter_context(stored_lanes(job_directory(config), lanes))
        yield stored
