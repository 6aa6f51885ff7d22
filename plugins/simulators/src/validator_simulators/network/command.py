# SPDX-License-Identifier: Apache-2.0
"""`validator simulate network`: message bodies off the relay chain as a model, with its figures as tables, JSON and plots."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from validator.cli.command_api import UserError, VisibleConsole, jar_progress
from validator_simulators.network import (
    CASES,
    POLICIES,
    SIZES,
    TRAFFIC,
    Case,
    NetworkSettings,
    Report,
    differing,
    simulate,
    to_json,
)

DEFAULTS: Final = NetworkSettings()
WIDTH: Final = 132
"""Columns of the tables where there is no terminal."""


@dataclass(frozen=True, slots=True)
class Played:
    """A run: its case, its report, and the columns in which it differs from the reference table."""

    case: Case
    report: Report
    differs: list[str]


def _option(panel: str, text: str, default: object) -> Any:
    """Return a setting's option: its default is the one of the settings, and None says that it is not given."""
    return typer.Option(help=f"{text} [default: {default}]", show_default=False, rich_help_panel=panel)


def network(
    seed: Annotated[int | None, _option("Traffic", "Same seed and settings, same bytes.", 1)] = None,
    paras: Annotated[int | None, _option("Traffic", "Number of paras.", DEFAULTS.paras)] = None,
    blocks: Annotated[
        int | None, _option("Traffic", "Number of relay blocks, 6 s apart.", f"{DEFAULTS.blocks:,}")
    ] = None,
    traffic: Annotated[
        str | None,
        _option(
            "Traffic",
            f"{', '.join(TRAFFIC)}: even fan-in, recipients by popularity, or all to one para.",
            DEFAULTS.traffic,
        ),
    ] = None,
    fan_out: Annotated[int | None, _option("Traffic", "Channels of each sender.", DEFAULTS.fan_out)] = None,
    messages_per_block: Annotated[
        float | None,
        _option(
            "Traffic", "Messages of each sender in a block, mean; at most one per channel.", DEFAULTS.messages_per_block
        ),
    ] = None,
    load: Annotated[
        float | None,
        _option("Traffic", "Bytes offered to the mean recipient, as a share of what it can take in.", DEFAULTS.load),
    ] = None,
    size_bytes_mean: Annotated[
        int | None, _option("Traffic", "Mean size of a message, instead of --load.", "from the load")
    ] = None,
    sizes: Annotated[
        str | None, _option("Traffic", f"Distribution of sizes: {', '.join(SIZES)}.", DEFAULTS.sizes)
    ] = None,
    capacity_messages: Annotated[
        int | None,
        _option("Recipients", "K: unread messages of a channel at which it refuses more.", DEFAULTS.capacity_messages),
    ] = None,
    ingest_bytes: Annotated[
        int | None,
        _option("Recipients", "I: bytes that a recipient takes in per relay block.", f"{DEFAULTS.ingest_bytes:,}"),
    ] = None,
    build_every_blocks: Annotated[
        int | None, _option("Recipients", "Relay blocks per block of a recipient.", DEFAULTS.build_every_blocks)
    ] = None,
    policy: Annotated[
        str | None, _option("Recipients", f"Order of acknowledgements: {', '.join(POLICIES)}.", DEFAULTS.policy)
    ] = None,
    greedy_share: Annotated[
        float | None,
        _option(
            "Recipients",
            "Share of recipients that favour some senders, whatever the policy of the others.",
            DEFAULTS.greedy_share,
        ),
    ] = None,
    favoured_share: Annotated[
        float | None, _option("Recipients", "Share of senders that are favoured.", DEFAULTS.favoured_share)
    ] = None,
    delay_ms: Annotated[int | None, _option("Links", "Least delay of a body.", DEFAULTS.delay_ms)] = None,
    jitter_ms: Annotated[
        int | None, _option("Links", "Mean of an exponential time on top.", DEFAULTS.jitter_ms)
    ] = None,
    late_share: Annotated[
        float | None, _option("Links", "Share of transfers that are late.", DEFAULTS.late_share)
    ] = None,
    late_ms: Annotated[
        int | None, _option("Links", "Mean of an exponential time that late ones take more.", DEFAULTS.late_ms)
    ] = None,
    lost_share: Annotated[
        float | None, _option("Links", "Share of transfers that are lost.", DEFAULTS.lost_share)
    ] = None,
    request_after_blocks: Annotated[
        int | None,
        _option(
            "Links",
            "Relay blocks after which a missing body is requested again; 0: never.",
            DEFAULTS.request_after_blocks,
        ),
    ] = None,
    request_backoff: Annotated[
        float | None, _option("Links", "The next wait, as a multiple of the last one.", DEFAULTS.request_backoff)
    ] = None,
    mesh_nodes: Annotated[
        int | None, _option("Cost", "Nodes of a mesh that floods bodies.", DEFAULTS.mesh_nodes)
    ] = None,
    mesh_degree: Annotated[int | None, _option("Cost", "Neighbours of each node.", DEFAULTS.mesh_degree)] = None,
    replication_factor: Annotated[int | None, _option("Cost", "Kafka's replicas.", DEFAULTS.replication_factor)] = None,
    consumer_groups: Annotated[
        int | None, _option("Cost", "Groups that read from Kafka.", DEFAULTS.consumer_groups)
    ] = None,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Run every row of the reference table instead; only --seed may be given.",
            rich_help_panel="Output",
        ),
    ] = False,
    plots: Annotated[
        Path | None, typer.Option(help="Also draw plots into this directory.", rich_help_panel="Output")
    ] = None,
    image: Annotated[
        str, typer.Option(help="Format of the plots: svg, png or both.", rich_help_panel="Output")
    ] = "svg",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one report per line.", rich_help_panel="Output")
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", help="Print the JSON Schema of a line of --json, and nothing else.", rich_help_panel="Output"
        ),
    ] = False,
) -> None:
    """Simulate a network in which paras exchange message bodies off the relay chain, which keeps the queues.

    Shows how long acknowledgements take, how fair recipients are, what channels refuse, and how many bytes move, compared with theory.
    The page on networking in docs/ explains the model and every figure.
    """
    options = locals()  # those of the settings have the settings' names
    given = {each.name: options[each.name] for each in fields(NetworkSettings) if options[each.name] is not None}
    if schema:
        from validator_simulators.network.tables import json_schema

        sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
        return
    cases = _reference(given) if reference else [Case("network", _settings(given))]
    draw = _drawing(plots, image)
    played = list(_play(cases))
    if as_json:
        sys.stdout.writelines(
            json.dumps(_row(each, reference=reference), separators=(",", ":")) + "\n" for each in played
        )
    else:
        _print_tables(played, reference=reference)
    if draw:
        for path in draw(played):
            typer.echo(f"{path}: written", err=True)


def _settings(given: dict[str, Any]) -> NetworkSettings:
    """Return the settings; a size stands in for the default load, and traffic to one para has one message of each sender."""
    if "size_bytes_mean" in given:
        given.setdefault("load", None)
    if given.get("traffic") == "one":
        given.setdefault("messages_per_block", 1.0)
    return NetworkSettings(**given)


def _reference(given: dict[str, Any]) -> list[Case]:
    others = [f"--{name.replace('_', '-')}" for name in given if name != "seed"]
    if others:
        raise UserError(f"--reference: expected no other setting than --seed, found {', '.join(others)}")
    return [replace(case, settings=replace(case.settings, **given)) for case in CASES]


def _drawing(directory: Path | None, image: str) -> Any:
    """Return the function that draws, if there is a directory, before anything is simulated: it may be unable to."""
    formats = {"svg": ["svg"], "png": ["png"], "both": ["svg", "png"]}.get(image)
    if formats is None:
        raise UserError(f"--image: expected svg, png or both, found {image!r}")
    if directory is None:
        if image != "svg":
            raise UserError("--image: expected --plots FOLDER with it, found none")
        return None
    from validator_simulators.network.plots import drawing

    return drawing(directory, formats)


def _play(cases: list[Case]) -> Iterator[Played]:
    total = sum(case.settings.blocks for case in cases)
    with jar_progress() as show:
        before = 0
        for case in cases:
            name, done = case.name, before

            def progress(block: int, name: str = name, done: int = done) -> None:
                show(name, done + block, total)

            report = simulate(case.settings, progress)
            before += case.settings.blocks
            yield Played(case, report, differing(case, report))


def _row(played: Played, *, reference: bool) -> dict[str, Any]:
    """Return a line of `--json`; a row of the reference table also has what is published."""
    row: dict[str, Any] = {"case": played.case.name, **to_json(played.report)}
    return {**row, "published": played.case.published, "differs": played.differs} if reference else row


def _print_tables(played: list[Played], *, reference: bool) -> None:
    from validator_simulators.network.tables import reference_table, report_tables

    console = VisibleConsole() if sys.stdout.isatty() else VisibleConsole(width=WIDTH)
    for table in [reference_table(played)] if reference else report_tables(played[0].report):
        console.print(table)
