# SPDX-License-Identifier: Apache-2.0
"""`validator rules` and `validator explain`: the rules that a chain can choose by height, and the text behind a code, in words."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.markdown import Markdown
from rich.table import Column, Table
from rich.text import Text

from validator.cli.common import ConfigPath, Json, print_json, say
from validator.cli.table import PlainTable, VisibleConsole, cells, print_table, several
from validator.config import DEFAULT_PROTOCOL, load_config
from validator.config.explain import chain_of
from validator.core.limits import U32_MAX
from validator.core.rules import in_force
from validator.errors import UserError
from validator.lanes.configured import rules_runtime
from validator.names import KINDS, LIMITS, NAMES, snake_case
from validator.plugin.protocol_api import RuleProfiles
from validator.plugin.rule_choice import NO_PROFILE, profile_of, suggestion
from validator.plugin.rule_pages import (
    LANE,
    RuleEntry,
    RulesPage,
    Sort,
    close_names,
    find_entries,
    installed_pages,
    series_of,
)
from validator.plugin.runtime import installed_protocol
from validator.visible import printable_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rich.console import RenderableType

    from validator.config import Chain


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
        print_json(*rows)
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
        say(f"lane {lane}, block {block}: {profile_of(profiles, features)}")
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
        print_json(*rows)
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


_HEADINGS = ("protocol", "code", "type", "title")
_STYLES = {Sort.ERROR: "bold red", Sort.REASON: "bold red", Sort.READING: "bold yellow", Sort.INVARIANT: "bold cyan"}


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODE]...",
            help="Codes (R-12, I-06), error kinds, a clause, which may be several words, features or profiles of rules by "
            "height, limits, kinds of requests, or what a verdict prints as `rule`. Case does not matter.",
        ),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Only this protocol's page; lane: the page of what all protocols share.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the rule, reading, invariant or error behind a code, from the pages of all installed protocols.

    What a protocol of ./validator.toml says comes first. A feature prints its rules, a profile what it changes, a limit or a request the
    rules that name it. Without CODE, list all entries.
    """
    pages = _pages(protocol)
    if not words:
        _list([entry for page in pages for entry in page.entries], as_json=as_json)
        return
    wanted = " ".join(words)
    entries = _find(pages, wanted)
    if not entries and len(words) > 1:
        each_word = [_find(pages, word) for word in words]
        if all(each_word):
            entries = list({id(entry): entry for found in each_word for entry in found}.values())
        elif any(each_word):
            wanted = next(word for word, found in zip(words, each_word, strict=True) if not found)
    if not entries:
        close = " or ".join(map(repr, close_features_and_profiles(pages, wanted) or close_names(pages, wanted)))
        where = f"protocol {protocol}" if protocol else "any installed protocol"
        hint = f"; did you mean {close}?" if close else ""
        series = series_of(pages, wanted)
        hint += f"; these codes go from {series[0]} to {series[1]}" if series else ""
        raise UserError(
            f"CODE: expected a code, an error kind, a clause, a feature, a profile or a limit of {where}, found {wanted!r}{hint}"
        )
    _print_entries(entries, as_json=as_json)


def _pages(protocol: str | None) -> Sequence[RulesPage]:
    pages, problems = installed_pages()
    for problem in problems:  # the other pages are still usable
        say(f"validator: {problem}")
    if protocol is None:
        return pages
    chosen = [page for page in pages if page.protocol == protocol]
    if not chosen:
        known = ", ".join(page.protocol for page in pages)
        raise UserError(f"--protocol: expected one with a page of rules ({known}), found {protocol!r}")
    return chosen


def _configured_first(entries: Sequence[RuleEntry]) -> list[RuleEntry]:
    configured: set[str] = set()
    with suppress(UserError):  # a file that cannot be used says so to the commands that need it
        configured = {chain.protocol for chain in load_config(None).chains.values()}
    return sorted(entries, key=lambda entry: entry.protocol not in configured)


def _list(entries: Sequence[RuleEntry], *, as_json: bool) -> None:
    if as_json:
        print_json(*(entry.to_json() for entry in entries))
        return
    rows = [(entry.protocol, entry.name, str(entry.sort), entry.title or _first_line(entry)) for entry in entries]
    console = VisibleConsole()
    if not console.is_terminal:
        sys.stdout.write(PlainTable(_HEADINGS).lines(rows))
        return
    columns = (Column(heading, no_wrap=heading == "code") for heading in _HEADINGS)
    table = Table(*columns, box=None, padding=(0, 1), header_style="bold")
    for row, entry in zip(rows, entries, strict=True):
        protocol, name, *rest = cells(row)
        name.stylize(_STYLES.get(entry.sort, "bold"))
        table.add_row(protocol, name, *rest)
    console.print(table)


def _print_entries(entries: Sequence[RuleEntry], *, as_json: bool) -> None:
    if as_json:
        print_json(*(entry.to_json() for entry in entries))
        return
    console = VisibleConsole()
    if console.is_terminal:
        for at, entry in enumerate(entries):
            console.print(Group(*([Text()] if at else []), *_rendered(entry)))
    else:
        sys.stdout.write("\n".join(printable_lines(_plain(entry)) for entry in entries))


def _facts(entry: RuleEntry) -> list[tuple[str, str]]:
    facts = [("clause", clause) for clause in entry.clauses]
    facts += [("source", ", ".join(entry.sources))] if entry.sources else []
    facts += [("fields", ", ".join(f"{name}: {kind}" for name, kind in form) or "none") for form in entry.fields]
    facts += [("rule", ", ".join(entry.rules))] if entry.rules else []
    facts += [(name, text) for name, text in (("says", entry.says), ("then", entry.then)) if text]
    return [*facts, ("page", entry.reference)]


def _heading(entry: RuleEntry) -> str:
    return f"{entry.name}  {entry.title}" if entry.title else entry.name


def _about(entry: RuleEntry) -> str:
    return f"{entry.protocol}, {entry.sort}, {entry.group}"


def _rendered(entry: RuleEntry) -> list[RenderableType]:
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(entry):
        facts.add_row(Text(name, style="dim"), *cells([value]))
    heading = Text.assemble((_heading(entry), _STYLES.get(entry.sort, "bold")), f"  ({_about(entry)})")
    text: list[RenderableType] = [Text(), Markdown(printable_lines(entry.text), hyperlinks=False)] if entry.text else []
    return [heading, facts, *text]


def _plain(entry: RuleEntry) -> str:
    lines = [f"{_heading(entry)}  ({_about(entry)})", *(f"  {name}: {value}" for name, value in _facts(entry))]
    if entry.text:
        lines += ["", entry.text]
    return "\n".join(lines) + "\n"


def _first_line(entry: RuleEntry) -> str:
    return entry.text.partition("\n")[0]


_NAMED_FEATURE: Final = re.compile(r"\(`([^`]+)`\)$")


def find_feature_or_profile(pages: Iterable[RulesPage], wanted: str) -> list[RuleEntry]:
    """Return what explains a feature, its rules, or a profile, an entry that lists what it changes; case is ignored.

    A feature that no rule of the page names is an entry with its sentence alone.
    """
    key = wanted.strip().casefold()
    found: list[RuleEntry] = []
    for page, profiles in _with_profiles(pages):
        found += [entry for name in profiles.features if name == key for entry in _feature(page, profiles, name)]
        found += [_profile(page, profiles, name) for name in profiles.profiles if name == key]
    return found


def find_named(pages: Iterable[RulesPage], wanted: str) -> list[RuleEntry]:
    """Return, of each page, the rules of a function of a source, else those that name a limit or the kind of a request in their text.

    Names that others use lead to the same (`NAMES`): each protocol's sources have their own name of a call.
    """
    name = snake_case(wanted.strip())
    same = [each for each in NAMES if name in (each.ours, *each.theirs) and each.where in (LIMITS, KINDS)]
    names = {name, *(each for row in same for each in (row.ours, *row.theirs))}
    found: list[RuleEntry] = []
    for page in pages:
        rules = [entry for entry in page.entries if entry.sort is Sort.RULE]
        in_source = [entry for entry in rules if _names_in(entry) & names]
        in_text = [entry for entry in rules if any(f"`{each}`" in f"{entry.title}\n{entry.text}" for each in names)]
        found += in_source or in_text
    return found


def _names_in(entry: RuleEntry) -> set[str]:
    return {word for text in (*entry.clauses, *entry.sources) for word in text.split()}


def _find(pages: Sequence[RulesPage], wanted: str) -> list[RuleEntry]:
    """Return what a code, a name or the address that a verdict prints as `rule` names, that of a configured protocol first."""
    at_address = [entry for page in pages for entry in page.entries if entry.reference == wanted]
    entries = (
        at_address or find_entries(pages, wanted) or find_feature_or_profile(pages, wanted) or find_named(pages, wanted)
    )
    return _configured_first(entries) if len({entry.protocol for entry in entries}) > 1 else entries


def close_features_and_profiles(pages: Iterable[RulesPage], wanted: str) -> list[str]:
    """Return at most three names of features and profiles similar to ``wanted``, the closest first."""
    known = {name: None for _, profiles in _with_profiles(pages) for name in (*profiles.features, *profiles.profiles)}
    return get_close_matches(wanted.strip().casefold(), known, 3)


def _with_profiles(pages: Iterable[RulesPage]) -> Iterator[tuple[RulesPage, RuleProfiles]]:
    for page in pages:
        definition = None if page.protocol == LANE else installed_protocol(page.protocol)
        if definition is not None and definition.rule_profiles is not None:
            yield page, definition.rule_profiles


def _rules_of(page: RulesPage, feature: str) -> list[RuleEntry]:
    """Return the rules that a page has for a feature: those that name it, and their parts."""
    codes = [
        entry.name for entry in page.entries if (named := _NAMED_FEATURE.search(entry.title)) and named[1] == feature
    ]
    return [
        entry for entry in page.entries if any(re.fullmatch(rf"{re.escape(code)}[a-z]?", entry.name) for code in codes)
    ]


def _feature(page: RulesPage, profiles: RuleProfiles, name: str) -> list[RuleEntry]:
    alone = RuleEntry(page.protocol, Sort.FEATURE, name, "", "Features", page.address, text=profiles.features[name])
    return _rules_of(page, name) or [alone]


def _profile(page: RulesPage, profiles: RuleProfiles, name: str) -> RuleEntry:
    names = list(profiles.profiles)
    at = names.index(name)
    held = profiles.profiles[name]
    before = profiles.profiles[names[at - 1]] if at else frozenset[str]()
    lines = [
        f"- {sign} `{feature}` ({', '.join(entry.name for entry in _rules_of(page, feature)) or 'no rule'}): {says}"
        for sign, changed in (("adds", held - before), ("removes", before - held))
        for feature, says in profiles.features.items()
        if feature in changed
    ]
    since = f"Changes since `{names[at - 1]}`:" if at else "Features:"
    text = "\n".join([since, "", *lines]) if lines else "The protocol's first rules: no feature holds."
    return RuleEntry(page.protocol, Sort.PROFILE, name, "", "Profiles", page.address, text=text)
