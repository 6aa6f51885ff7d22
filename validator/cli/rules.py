# SPDX-License-Identifier: Apache-2.0
"""`validator rules list|show|diff`: the rules that a chain can choose by height, in words."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Column, Table

from validator.cli.common import ConfigPath, Json, say
from validator.cli.table import cells, print_table, several
from validator.config import DEFAULT_PROTOCOL, load_config
from validator.config.unknown import chain_of
from validator.core.limits import U32_MAX
from validator.core.rules import in_force
from validator.errors import UserError
from validator.lanes.configured import rules_runtime
from validator.plugin.rule_choice import suggestion
from validator.plugin.runtime import installed_protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from validator.config import Chain
    from validator.plugin.protocol_api import RuleProfiles

NO_PROFILE: Final = "no named profile"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",  # the default would take [chains] for markup
    help="List the rules that a chain can choose by height; show one profile, or the difference of two.",
)

Protocol = Annotated[str, typer.Option("--protocol", help="The protocol whose rules to show.")]
Profile = Annotated[str, typer.Argument(metavar="PROFILE", help="A profile, as `validator rules list` shows them.")]


@app.command("list")
def list_(config_path: ConfigPath = None, protocol: Protocol = DEFAULT_PROTOCOL, as_json: Json = False) -> None:
    """List the profiles of a protocol, oldest first, each with what it adds and removes, and the chains that choose it.

    Sets of features that chains list and that no profile names come last.
    """
    profiles = _profiles(protocol)
    chosen = _chosen(profiles, config_path, protocol)
    rows: list[dict[str, Any]] = []
    before: frozenset[str] = frozenset()
    for name, features in profiles.profiles.items():
        plus, minus = _ordered(profiles, features - before), _ordered(profiles, before - features)
        rows.append({"profile": name, "plus": plus, "minus": minus, "chains": chosen.pop(features, [])})
        before = features
    for features, chains in chosen.items():
        rows.append({"profile": None, "plus": _ordered(profiles, features), "minus": [], "chains": chains})
    if as_json:
        _write_json(rows)
        return
    table = _table("profile", "what it changes", "chains")
    for row in rows:
        changes = [*(f"+ {each}" for each in row["plus"]), *(f"- {each}" for each in row["minus"])]
        table.add_row(
            row["profile"] or NO_PROFILE, several(changes) or "the protocol's first rules", several(row["chains"])
        )
    print_table(table)


@app.command()
def show(
    profile: Annotated[
        str | None, typer.Argument(metavar="[PROFILE]", help="A profile, as `validator rules list` shows them.")
    ] = None,
    lane: Annotated[str | None, typer.Option(help="Instead of a profile: a configured chain, with --block.")] = None,
    block: Annotated[
        int | None, typer.Option(min=0, max=U32_MAX, help="The block whose rules to show; needs --lane.")
    ] = None,
    config_path: ConfigPath = None,
    protocol: Protocol = DEFAULT_PROTOCOL,
    as_json: Json = False,
) -> None:
    """Show what holds under a profile, or in a block of a configured chain: its features, each in a sentence."""
    if profile is not None and lane is None and block is None:
        profiles = _profiles(protocol)
        features = _features(profiles, profile)
    elif profile is None and lane is not None and block is not None:
        config = load_config(config_path)
        chain = chain_of(config.chains, lane)
        profiles = _profiles(chain.protocol, f"chains.{lane}.protocol")
        features = _in_block(profiles, chain, lane, block)
        name = next((each for each, held in profiles.profiles.items() if held == features), NO_PROFILE)
        say(f"lane {lane}, block {block}: {name}")
    else:
        raise UserError("expected either PROFILE, or --lane and --block")
    _print(
        profiles, [("", each) for each in _ordered(profiles, features)], "the protocol's first rules", as_json=as_json
    )


@app.command()
def diff(
    profile: Profile,
    other: Annotated[str, typer.Argument(metavar="PROFILE", help="The profile to compare it with.")],
    protocol: Protocol = DEFAULT_PROTOCOL,
    as_json: Json = False,
) -> None:
    """Show what changes from one profile to another: + begins to hold, - no longer holds."""
    profiles = _profiles(protocol)
    one, two = _features(profiles, profile), _features(profiles, other)
    changes = [("+", feature) for feature in _ordered(profiles, two - one)]
    changes += [("-", feature) for feature in _ordered(profiles, one - two)]
    _print(profiles, changes, "no difference", as_json=as_json)


def _profiles(protocol: str, where: str = "--protocol") -> RuleProfiles:
    definition = installed_protocol(protocol)
    if definition is None:
        raise UserError(f"{where}: expected an installed protocol, found {protocol!r}")
    if definition.rule_profiles is None:
        raise UserError(f"protocol {protocol} has one set of rules for every height")
    return definition.rule_profiles


def _features(profiles: RuleProfiles, name: str) -> frozenset[str]:
    if name not in profiles.profiles:
        hint = suggestion(name, profiles.profiles)
        raise UserError(f"PROFILE: expected one of {', '.join(profiles.profiles)}, found {name!r}{hint}")
    return profiles.profiles[name]


def _in_block(profiles: RuleProfiles, chain: Chain, lane: str, block: int) -> frozenset[str]:
    """Return what holds in a block of a chain: the features of its list, and the notifications that its own key switches on."""
    features = profiles.features_of(in_force(rules_runtime(chain, lane).rules, block).version)
    everywhere = profiles.notifications if chain.hrmp_notifications else None
    if everywhere is None or everywhere in features:
        return features
    say(f"lane {lane}: {everywhere} holds in every block, since chains.{lane}.hrmp_notifications is true")
    return features | {everywhere}


def _chosen(profiles: RuleProfiles, config_path: Any, protocol: str) -> dict[frozenset[str], list[str]]:
    """Return, by features, the configured chains that list them, each with the block from which they hold.

    A chain with a bad list is named on standard error and left out: this command shows what a list may hold.
    """
    chosen: dict[frozenset[str], list[str]] = {}
    for lane, chain in sorted(load_config(config_path).chains.items()):
        if chain.protocol != protocol or not chain.rules:
            continue
        try:
            epochs = rules_runtime(chain, lane).rules
        except UserError as error:
            say(f"validator: {error}")
            continue
        listed = {entry.from_block for entry in chain.rules}
        for epoch in epochs:
            if epoch.from_block in listed:
                chosen.setdefault(profiles.features_of(epoch.version), []).append(
                    f"{lane} from block {epoch.from_block}"
                )
    return chosen


def _ordered(profiles: RuleProfiles, features: Collection[str]) -> list[str]:
    return [feature for feature in profiles.features if feature in features]


def _print(profiles: RuleProfiles, changes: Iterable[tuple[str, str]], empty: str, *, as_json: bool) -> None:
    rows = [
        {"change": sign or None, "feature": feature, "says": profiles.features[feature]} for sign, feature in changes
    ]
    if as_json:
        _write_json(rows)
        return
    if not rows:
        sys.stdout.write(f"{empty}\n")
        return
    table = _table("feature", "what holds")
    for row in rows:
        feature = f"{row['change'] or ''} {row['feature']}".strip()
        table.add_row(*cells((feature, str(row["says"]))))
    print_table(table)


def _table(*headings: str) -> Table:
    return Table(Column(headings[0], no_wrap=True), *headings[1:], box=None, padding=(0, 2, 0, 0))


def _write_json(rows: list[dict[str, Any]]) -> None:
    sys.stdout.write("".join(json.dumps(row) + "\n" for row in rows))
