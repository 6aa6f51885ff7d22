# SPDX-License-Identifier: Apache-2.0
"""`validator what-if`: replays a lane's recorded inputs under another configuration, and shows which verdicts differ."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from validator import exit_codes
from validator.cli.common import Json, OneLane, lane_of, print_json, say, terminated_as_interrupted
from validator.cli.export import inputs_of
from validator.cli.progress import counting
from validator.cli.rows import why
from validator.cli.table import cells, print_table, table_of
from validator.codec.encode import RUNTIME_DIGEST_BYTES, Encoder
from validator.codec.json_form import shown_json
from validator.config import load_config
from validator.config.explain import chain_of
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.history.what_if import (
    Change,
    Changes,
    Replayed,
    Sample,
    Sweep,
    case_of,
    other_cases,
    read_limits,
    read_sweep,
    replay,
)
from validator.plugin.pack import use_artefacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from validator.config import Config
    from validator.history.what_if import Comparison, Difference, Levels


def what_if(
    lane: OneLane = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="OTHER.toml", help="The other configuration. Default: the lane's own."),
    ] = None,
    own: Annotated[
        Path | None,
        typer.Option(
            "--own", metavar="OWN.toml", help="The lane's own configuration. Default: ./validator.toml, if it exists."
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="LIMIT=N,N,...", help="Try several values of one limit of the other configuration."),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Rules of the other configuration, for all blocks: a profile that `validator rules list` names.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="LIMIT=N", help="A limit of the other configuration. May be repeated."),
    ] = None,
    each_block: Annotated[
        bool,
        typer.Option(
            "--each-block", help="Also judge each block on the lane's own state: causes apart from their consequences."
        ),
    ] = False,
    from_block: Annotated[
        int | None,
        typer.Option(min=1, max=U32_MAX, help="The other configuration applies from this block. Default: the first."),
    ] = None,
    to_block: Annotated[
        int, typer.Option(min=1, max=U32_MAX, help="End after this block. Default: the last.")
    ] = U32_MAX,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Read blocks.jsonl, candidates.jsonl and so on from here instead of Kafka."
        ),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw queues and headroom into this folder.")
    ] = None,
    image: Annotated[str, typer.Option(help="Format of the plots: svg, png or both.")] = "svg",
    limit: Annotated[int, typer.Option(min=0, help="Differences to print one by one; 0: none.")] = 20,
    as_json: Json = False,
) -> None:
    """Replay a lane's recorded inputs under another configuration, and show which verdicts differ.

    Limits, handlers, rules by height and modes may differ; the protocol may not. Both configurations execute the inputs in this process;
    the job may run. Without --from-block, each begins with its own first state. With it, the other one begins with the lane's state before
    that block, and limits that both files give alike keep the values in force there. Exit code 1 if the inputs end early, or no block
    takes a record of a file.
    """
    if config is None and sweep is None and rules is None and not set_:
        raise UserError(
            "expected --config OTHER.toml, --rules PROFILE, --set LIMIT=N or --sweep LIMIT=N,N,..., found none of them"
        )
    if image not in ("svg", "png", "both"):
        raise UserError(f"--image: expected svg, png or both, found {image!r}")
    if image != "svg" and plots is None:
        raise UserError("--image: expected --plots FOLDER with it, found none")
    if from_block is not None and to_block < from_block:
        raise UserError(f"--to-block: expected a block from {from_block} on, found {to_block}")
    swept = None if sweep is None else read_sweep(sweep)
    changes = Changes(rules, read_limits(set_ or ()))
    mine = load_config(own)
    lane = lane_of(mine, lane)
    chain_of(mine.chains, lane)
    draw = None
    if plots is not None:
        from validator.cli.what_if_plots import drawing  # matplotlib is an extra

        draw = drawing(plots, ("svg", "png") if image == "both" else (image,))
    with terminated_as_interrupted():
        replay_ = partial(replay, from_block=from_block, to_block=to_block, each_block=each_block, live=records is None)
        replayed = _replay(mine, lane, config, swept, changes, records, replay_)
    if replayed.blocks == 0:
        raise UserError(f"lane {lane}: no block could be executed: {replayed.waits_for}")
    if as_json:
        print_json(*difference_documents(replayed, limit), *summary_documents(replayed))
    else:
        print_table(tables(replayed, limit))
    complete = _say_what_is_unused(replayed, is_file=records is not None)
    if draw is not None:
        for path in draw(replayed):
            say(f"{path} written")
    if not complete:
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _say_what_is_unused(replayed: Replayed, *, is_file: bool) -> bool:
    """Say why the inputs end early and, of files, which records no block takes; return whether nothing is wrong with the inputs."""
    if replayed.stopped:
        say(f"lane {replayed.lane}: {replayed.stopped}")
    if not is_file:  # the job has written the others to `dead-letters`
        return not replayed.stopped
    for each in replayed.refused[:REFUSED_SHOWN]:
        say(
            f"{each.source.topic}.jsonl, line {each.source.offset}: no block takes it: {each.reason.name.lower()}: {each.detail}"
        )
    if len(replayed.refused) > REFUSED_SHOWN:
        say(f"and {len(replayed.refused) - REFUSED_SHOWN:,} more")
    return not replayed.stopped and not replayed.refused


SESSION_LIMITS_MAX: Final = 1_000
"""Session changes that set a changed limit, of a configuration in JSON."""

REFUSED_SHOWN: Final = 20
"""Records that no block takes of which a line is printed."""


def _replay(
    own: Config,
    lane: str,
    config: Path | None,
    sweep: Sweep | None,
    changes: Changes,
    records: Path | None,
    replay: Callable[..., Replayed],
) -> Replayed:
    other = None if config is None else load_config(config)
    for each in (own, other):
        if each is not None:
            use_artefacts(each.plugins.artefacts)
    mine = case_of("own", own, lane)
    cases = other_cases(own, other, "own" if config is None else str(config), lane, sweep, changes)
    with counting(f"lane {lane}: replaying its inputs") as progress:
        inputs = inputs_of(own, mine.definition, records, progress)
        return replay(inputs, mine, cases)


KINDS_SHOWN: Final = 20
"""Ways in which verdicts differ, the most frequent ones, that a table shows."""

PARAS_SHOWN: Final = 10
BLOCKS_SHOWN: Final = 10
"""Paras, and blocks, with the most differences that a table shows."""

_WORDS: Final = {
    Change.REJECTED: "newly rejected",
    Change.ACCEPTED: "newly accepted",
    Change.ERROR: "rejected with other numbers",
    Change.EFFECT: "accepted with other numbers",
}


def tables(replayed: Replayed, limit: int) -> Group:
    """Show a replay: what was executed, then each comparison."""
    dead = f", {replayed.dead:,} dead letters left out" if replayed.dead else ""
    parts: list[Any] = [
        Text(
            f"{replayed.lane} · blocks {replayed.first_block} to {replayed.last_block} · {replayed.blocks:,} blocks, "
            f"{replayed.records:,} records{dead}"
        )
    ]
    parts += map(Text, _session_limits(replayed))
    if len(replayed.comparisons) > 1:
        parts += [Text(""), _sweep(replayed)]
        return Group(*parts)
    (comparison,) = replayed.comparisons
    return Group(*parts, *_comparison(replayed, comparison, limit))


def _session_limits(replayed: Replayed) -> Iterator[str]:
    """Yield a line for each changed limit that recorded session changes set."""
    by_limit: dict[tuple[str, bool], dict[int, int]] = {}
    for each in (found for comparison in replayed.comparisons for found in comparison.session_limits):
        by_limit.setdefault((each.limit, each.held), {})[each.block] = each.value
    for (limit, held), values in by_limit.items():
        (block, value), *later = sorted(values.items())
        more = f" (and of {len(later):,} later ones)" if later else ""
        if held:
            yield f"  {limit}: the value asked for holds through the session change in block {block}, which sets {value}{more}"
        else:
            yield f"  {limit}: reset to {value} by the session change in block {block}{more}"


def _sweep(replayed: Replayed) -> Table:
    changes = list(Change)
    caused = any(each.causes is not None for each in replayed.comparisons)
    least = ("least places left", "least upward messages left", "most downward waiting")
    table = table_of(
        "configuration",
        *(["causes"] if caused else []),
        *(_WORDS[each] for each in changes),
        *least,
        numbers=len(changes) + len(least) + caused,
    )
    rows = [("own", [0] * (len(changes) + caused), replayed.levels)]
    for each in replayed.comparisons:
        causes = [] if each.causes is None else [sum(each.causes.kinds.values())]
        rows.append((each.name, [*causes, *(each.count(change) for change in changes)], each.levels))
    for name, counts, levels in rows:
        table.add_row(
            *cells(
                (
                    name,
                    *(f"{count:,}" for count in counts),
                    _number(extreme(levels, "places_left_min", min)),
                    _number(extreme(levels, "upward_count_left_min", min)),
                    _number(extreme(levels, "downward_pending", max)),
                )
            )
        )
    return table


def _comparison(replayed: Replayed, comparison: Comparison, limit: int) -> Iterator[Any]:
    different = sum(comparison.kinds.values())
    yield Text(f"  {comparison.name}: {different:,} of {comparison.verdicts:,} verdicts differ")
    causes = comparison.causes
    if causes is not None:
        caused = sum(causes.kinds.values())
        yield Text(f"  {caused:,} differ by the configuration itself, if each block is judged on the lane's own state:")
        if caused:
            yield from (Text(""), _kinds(causes), Text(""), _paras(causes), Text(""), _blocks(causes))
        if limit and causes.differences:
            yield from (Text(""), _differences(replayed.lane, causes.differences[:limit]))
            if caused > limit:
                yield Text(f"  and {caused - limit:,} more")
        yield Text("")
        yield Text("  all differences, consequences of earlier ones included:")
        limit = 0
    if different:
        yield from (Text(""), _kinds(comparison), Text(""), _paras(comparison), Text(""), _blocks(comparison))
    yield from (Text(""), _levels(replayed.levels, comparison.levels))
    if limit and comparison.differences:
        yield from (Text(""), _differences(replayed.lane, comparison.differences[:limit]))
        if different > limit:
            yield Text(f"  and {different - limit:,} more")


def _kinds(comparison: Comparison) -> Table:
    table = table_of("verdicts", "input", "error before", "error after", "number", numbers=1)
    for (change, kind, before, after), number in _by_number(comparison.kinds.items())[:KINDS_SHOWN]:
        table.add_row(*cells((_WORDS[change], kind, before or "none", after or "none", f"{number:,}")))
    if len(comparison.kinds) > KINDS_SHOWN:
        table.add_row(f"and {len(comparison.kinds) - KINDS_SHOWN:,} other ways")
    return table


def _paras(comparison: Comparison) -> Table:
    changes = list(Change)
    table = table_of("para", *(_WORDS[each] for each in changes), numbers=len(changes))
    totals: dict[int, int] = {}
    for (para, _), number in comparison.paras.items():
        totals[para] = totals.get(para, 0) + number
    for para, _ in _by_number(totals.items())[:PARAS_SHOWN]:
        table.add_row(*cells((str(para), *(f"{comparison.paras[para, each]:,}" for each in changes))))
    if len(totals) > PARAS_SHOWN:
        table.add_row(f"and {len(totals) - PARAS_SHOWN:,} more")
    return table


def _blocks(comparison: Comparison) -> Table:
    table = table_of("block", "differences", numbers=1)
    first = min(comparison.blocks)
    table.add_row(*cells((f"{first} (the first)", f"{comparison.blocks[first]:,}")))
    for block, number in _by_number(comparison.blocks.items())[:BLOCKS_SHOWN]:
        if block != first:
            table.add_row(*cells((str(block), f"{number:,}")))
    if len(comparison.blocks) > BLOCKS_SHOWN:
        table.add_row(f"{len(comparison.blocks):,} blocks in all")
    return table


_LEVELS: Final = (
    ("most downward messages waiting", "downward_pending", max),
    ("most upward messages waiting", "upward_pending", max),
    ("most messages waiting in channels", "channel_pending", max),
    ("least upward messages left of a para", "upward_count_left_min", min),
    ("least upward bytes left of a para", "upward_bytes_left_min", min),
    ("most channels", "channels", max),
    ("least places left of a channel", "places_left_min", min),
    ("least bytes left of a channel", "bytes_left_min", min),
)


def _levels(own: Levels, other: Levels) -> Table:
    table = table_of("headroom and queues", "own", "other", numbers=2)
    for words, name, choose in _LEVELS:
        table.add_row(*cells((words, _number(extreme(own, name, choose)), _number(extreme(other, name, choose)))))
    return table


def extreme(levels: Levels, name: str, choose: Any) -> int | None:
    """Return the least or greatest value of a field of the samples, or None if none has one."""
    values = [value for sample in levels.samples if (value := getattr(sample, name)) is not None]
    return choose(values) if values else None


def _differences(lane: str, differences: Iterable[Difference]) -> Table:
    table = table_of("block", "input", "index", "para", "own", "other")
    for each in differences:
        document = _document(lane, each)
        table.add_row(
            *cells(
                (
                    str(document["block"]),
                    document["kind"],
                    str(document["index"]),
                    str(document["para_id"]),
                    _said(document["own"]),
                    _said(document["other"]),
                )
            )
        )
    return table


def _said(verdict: dict[str, Any]) -> str:
    if verdict["ok"]:
        numbers = ", ".join(str(each["sequence_number"]) for each in verdict["messages"])
        session = verdict["effective_session"]
        return (
            "accepted"
            + (f", sequence numbers {numbers}" if numbers else "")
            + ("" if session is None else f", session {session}")
        )
    return why(verdict["error"])


def difference_documents(replayed: Replayed, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the first differences of each comparison as JSON."""
    for comparison in replayed.comparisons:
        for each in (comparison.causes or comparison).differences[:limit]:
            yield {"configuration": comparison.name, **_document(replayed.lane, each)}


def _document(lane: str, difference: Difference) -> dict[str, Any]:
    encoder = Encoder(lane, bytes(RUNTIME_DIGEST_BYTES))
    own, other = (shown_json("verdicts", encoder.verdict(each)) for each in difference[1:])
    place = {name: own[name] for name in ("lane", "block", "kind", "index", "para_id")}
    left_out = {*place, "runtime_digest", "id", "candidate_hash"}
    return {
        "change": difference.change.value,
        **place,
        "own": {name: value for name, value in own.items() if name not in left_out},
        "other": {name: value for name, value in other.items() if name not in left_out},
    }


def summary_documents(replayed: Replayed) -> Iterator[dict[str, Any]]:
    """Yield, for each comparison, an object with all its counts and with the samples of both configurations."""
    for each in replayed.comparisons:
        yield {
            "configuration": each.name,
            "lane": replayed.lane,
            "first_block": replayed.first_block,
            "last_block": replayed.last_block,
            "blocks": replayed.blocks,
            "stopped": replayed.stopped or None,
            "refused": len(replayed.refused),
            "records": replayed.records,
            "session_limits": [found._asdict() for found in each.session_limits[:SESSION_LIMITS_MAX]],
            "verdicts": each.verdicts,
            **_counts(each),
            **({} if each.causes is None else {"causes": _counts(each.causes)}),
            "levels": {
                name: [dict(zip(Sample._fields, sample, strict=True)) for sample in levels.samples]
                for name, levels in (("own", replayed.levels), ("other", each.levels))
            },
        }


def _counts(comparison: Comparison) -> dict[str, Any]:
    return {
        "changes": {change.value: comparison.count(change) for change in Change},
        "kinds": [
            {"change": change, "kind": kind, "before": before or None, "after": after or None, "number": number}
            for (change, kind, before, after), number in _by_number(comparison.kinds.items())
        ],
        "paras": [
            {"para_id": para, "change": change, "number": number}
            for (para, change), number in sorted(comparison.paras.items())
        ],
        "differing_blocks": dict(sorted(comparison.blocks.items())),
    }


def _by_number(items: Iterable[tuple[Any, int]]) -> list[tuple[Any, int]]:
    return sorted(items, key=lambda item: (-item[1], item[0]))


def _number(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
