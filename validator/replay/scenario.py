# SPDX-License-Identifier: Apache-2.0
"""Reads and checks the scenarios of a trace file, whose keys `docs/trace-format.md` lists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeVar

from validator.config import DEFAULT_PROTOCOL
from validator.core.limits import U32_MAX, U64_MAX
from validator.core.rules import FIRST_RULES, RulesEpoch
from validator.core.types import BlockNumber, DownwardMessage, Para, SessionChange
from validator.document import Node, printable, read_para
from validator.errors import PluginFailed, UserError
from validator.plugin.protocol_api import ProtocolDefinition
from validator.plugin.registry import Found, discover
from validator.plugin.rule_choice import read_rules, rules_with
from validator.plugin.runtime import installed_protocol

T = TypeVar("T")

SCENARIO_KEYS = (
    *("id", "name", "group", "source", "rule", "protocol", "needs", "interpretation", "config", "genesis_paras"),
    *("rules", "ump_weights", "ump_default_weight", "ump_failing_messages", "steps", "final_state"),
)
STEP_KEYS = ("block", "requests", "downward", "candidates", "session_change", "expect")
EXPECT_KEYS = ("requests", "downward", "candidates", "dispatched", "state")
BODIES = "bodies"
"""A further key of steps and expectations, for protocols whose bodies travel outside of the relay chain."""
RESULT_KEYS = ("requests", "downward", "candidates", BODIES)
"""Keys of an expectation that have one entry for each input."""
NOTE = "note"
"""A key of an expectation that is for people."""
SESSION_CHANGE_KEYS = ("outgoing", "onboarding", "new_config")


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a block; each entry of ``candidates`` has the block that enacts it, or None for immediate enactment.

    ``bodies`` are the requests that report bodies, or None if the protocol has none.
    """

    block: BlockNumber
    requests: tuple[Any, ...]
    downward: tuple[DownwardMessage, ...]
    candidates: tuple[tuple[Any, BlockNumber | None], ...]
    bodies: tuple[Any, ...] | None
    session_change: SessionChange | None
    expect: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario. If ``skipped`` says why it cannot run, only its id and name have been read."""

    id: str
    name: str
    skipped: str | None = None
    protocol: ProtocolDefinition | None = None
    config: Any = None
    genesis_paras: tuple[Para, ...] = ()
    notifications: bool = False
    rules: tuple[RulesEpoch, ...] = FIRST_RULES
    weights: dict[bytes, int] = field(default_factory=dict)
    default_weight: int = 1
    failing: frozenset[bytes] = frozenset()
    steps: tuple[Step, ...] = ()
    final_state: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """What the program ignores although the author may have meant something by it; a line each."""

    @property
    def expects_anything(self) -> bool:
        """Whether there is anything to compare the output with."""
        return bool(self.final_state) or any(expects_anything(step.expect) for step in self.steps)


def read_scenarios(
    document: Node, *, expectations: bool = True, installed: Callable[[str], ProtocolDefinition | None] | None = None
) -> list[Scenario]:
    """Return the scenarios of a file, which holds one object or a list; ``expectations`` are read on request.

    Raises `UserError`, and `PluginFailed` if a protocol has a bug. Each protocol is looked for once, since that reads the metadata of every
    distribution; who reads several files passes one ``installed``.
    """
    installed = installed or cache(installed_protocol)
    if isinstance(document.value, dict):
        return [_scenario(document, expectations, installed)]
    if not isinstance(document.value, list):
        raise document.fail("a scenario or an array of them")
    return [_scenario(node, expectations, installed) for node in document.items()]


def _scenario(node: Node, expectations: bool, installed: Callable[[str], ProtocolDefinition | None]) -> Scenario:
    scenario_id = node["id"].text()
    name = node.get("name", Node.text, "")
    protocol_name = node.get("protocol", Node.text, DEFAULT_PROTOCOL)
    protocol = installed(protocol_name)
    node.refuse_misspelt((*SCENARIO_KEYS, *(() if protocol is None else protocol.traces.scenario_keys)))
    if protocol is None:
        hint = _did_you_mean(protocol_name, suite_names())
        return Scenario(scenario_id, name, skipped=f"protocol {protocol_name!r} is not installed{hint}")
    needs = [item.text() for item in node["needs"].items()] if node.has("needs") else []
    for feature in needs:
        if feature not in protocol.traces.features:
            hint = _did_you_mean(feature, protocol.traces.features)
            return Scenario(scenario_id, name, skipped=f"needs {feature!r}, which is not supported{hint}")
    rules = _rules(node, protocol, needs)

    warnings: list[str] = []
    steps = tuple(_step(step, protocol, expectations, warnings) for step in node["steps"].items())
    for earlier, later, at in zip(steps, steps[1:], range(1, len(steps)), strict=False):
        if later.block < earlier.block:
            raise Node(later.block, f"{node.path}.steps[{at}].block").fail(f"a block from {earlier.block} on")
    return Scenario(
        scenario_id,
        name,
        protocol=protocol,
        config=_configuration(node, protocol, warnings),
        genesis_paras=node.get("genesis_paras", lambda paras: tuple(read_para(para) for para in paras.items()), ()),
        notifications="hrmp_notifications" in needs and not node.has("rules"),
        rules=rules,
        weights=node.get("ump_weights", _weights, {}),
        default_weight=node.get("ump_default_weight", lambda member: member.integer(U64_MAX), 1),
        failing=node.get(
            "ump_failing_messages", lambda payloads: frozenset(item.hex() for item in payloads.items()), frozenset()
        ),
        steps=steps,
        final_state=node.get("final_state", lambda state: _state(state, protocol, warnings), {})
        if expectations
        else {},
        warnings=tuple(warnings),
    )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _configuration(node: Node, protocol: ProtocolDefinition, warnings: list[str]) -> Any:
    config = _config(node, protocol)
    warnings += _unknown_limits(config, (*protocol.limits, *protocol.traces.scenario_keys), protocol)
    with failures_of_reader(protocol, config.path):
        return protocol.configuration(config)


def _unknown_limits(node: Node, known: Collection[str], protocol: ProtocolDefinition) -> list[str]:
    """Return a warning for each key of a configuration that the protocol does not have."""
    return [
        f"{node.path}: protocol {protocol.name} has no limit {printable(key)!r}: it is ignored"
        for key in node.object()
        if key not in known
    ]


def _reading(protocol: ProtocolDefinition, take: Callable[[Node], T]) -> Callable[[Node], tuple[T, ...]]:
    """Return a function that reads an array with a function of the protocol, whose bugs are `PluginFailed`."""

    def read(items: Node) -> tuple[T, ...]:
        taken = []
        for item in items.items():
            with failures_of_reader(protocol, item.path):
                taken.append(take(item))
        return tuple(taken)

    return read


def _config(node: Node, protocol: ProtocolDefinition) -> Node:
    """Return a scenario's configuration together with the keys of the scenario that belong to it."""
    config = node["config"] if node.has("config") else Node({}, f"{node.path}.config")
    own = {key: node[key].value for key in protocol.traces.scenario_keys if node.has(key)}
    return Node({**config.object(), **own}, config.path) if own else config


def _rules(node: Node, protocol: ProtocolDefinition, needs: list[str]) -> tuple[RulesEpoch, ...]:
    """Return the rules by height: those that the scenario lists, else its features from block 0 on."""
    profiles = protocol.rule_profiles
    if profiles is None:
        if node.has("rules"):
            raise node["rules"].fail(f"no list: protocol {protocol.name} has one set of rules")
        return protocol.rules
    if node.has("rules"):
        uses = read_rules(profiles, node["rules"])
    else:
        uses = rules_with(profiles, [feature for feature in needs if feature in profiles.features])
    return tuple(profiles.epoch(*use) for use in uses)


def _weights(node: Node) -> dict[bytes, int]:
    return {Node(payload, f"{node.path} key").hex(): weight.integer(U64_MAX) for payload, weight in node.members()}


def _step(node: Node, protocol: ProtocolDefinition, expectations: bool, warnings: list[str]) -> Step:
    block, traces = node["block"].integer(), protocol.traces
    body = traces.body
    node.refuse_misspelt(STEP_KEYS if body is None else (*STEP_KEYS, BODIES))
    return Step(
        block=block,
        requests=node.get("requests", _reading(protocol, traces.request), ()),
        downward=node.get("downward", lambda items: tuple(map(_downward, items.items())), ()),
        candidates=node.get(
            "candidates",
            _reading(
                protocol,
                lambda item: (traces.candidate(item, block), item.get("enact_at_block", Node.integer, None)),
            ),
            (),
        ),
        bodies=None if body is None else node.get(BODIES, _reading(protocol, body), ()),
        session_change=node.get("session_change", lambda change: _session_change(change, protocol, warnings), None),
        expect=node.get("expect", lambda expect: _expect(expect, protocol, warnings), {}) if expectations else {},
    )


def _expect(node: Node, protocol: ProtocolDefinition, warnings: list[str]) -> dict[str, Any]:
    known = EXPECT_KEYS if protocol.traces.body is None else (*EXPECT_KEYS, BODIES)
    node.refuse_misspelt(known)
    warnings += [
        f"{node.path}: nothing is compared with {printable(key)!r}"
        for key in node.object()
        if key not in (*known, NOTE)
    ]
    for key in RESULT_KEYS:
        for result in node[key].items() if node.has(key) else ():
            if result["ok"].boolean():
                continue
            if result.has("error_any_of"):
                for kind in result["error_any_of"].items():
                    kind.text()
            else:
                result["error"]["kind"].text()
    for pair in node["dispatched"].items() if node.has("dispatched") else ():
        if len(list(pair.items())) != 2:
            raise pair.fail("[para, payload]")
    if node.has("state"):
        _state(node["state"], protocol, warnings)
    return {key: value for key, value in node.object().items() if value is not None}


def _state(node: Node, protocol: ProtocolDefinition, warnings: list[str]) -> dict[str, Any]:
    keys = protocol.traces.state_keys
    node.refuse_misspelt((*keys, *(f"{key}{EXACT}" for key in keys)))
    warnings += check_state_keys(node, protocol)
    return node.object()


def _downward(node: Node) -> DownwardMessage:
    return DownwardMessage(node["para_id"].integer(), node["msg"].hex())


def _session_change(node: Node, protocol: ProtocolDefinition, warnings: list[str]) -> SessionChange:
    node.refuse_misspelt(SESSION_CHANGE_KEYS)
    if node.has("new_config"):
        warnings += _unknown_limits(node["new_config"], protocol.maxima, protocol)
    return SessionChange(
        outgoing=node.get("outgoing", lambda items: tuple(item.integer() for item in items.items()), ()),
        onboarding=node.get("onboarding", lambda items: tuple(read_para(item) for item in items.items()), ()),
        new_config=node.get("new_config", protocol.changes, ()),
    )


def suite_files(name: str) -> list[Traversable]:
    """Return the files of a protocol's suite. Raises `UserError` if there is no such suite."""
    protocol = installed_protocol(name)
    folder = None if protocol is None else protocol.traces.suite
    found = () if folder is None or not folder.is_dir() else folder.iterdir()
    files = sorted((path for path in found if path.name.endswith(".json")), key=lambda path: path.name)
    if not files:
        raise UserError(f"suite {name!r}: no such suite, there are {', '.join(suite_names())}")
    return files


def suite_names() -> list[str]:
    """Return the names of the suites: one for each installed protocol that has one."""
    return sorted(found.name for found in discover("validator.protocols"))


@contextmanager
def failures_of(
    protocol: ProtocolDefinition, where: str, *, passes: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise `PluginFailed` for an exception of the protocol's code, which was asked for ``where``; ``passes`` are raised unchanged."""
    unchanged: tuple[type[Exception], ...] = (PluginFailed, *passes)
    try:
        yield
    except unchanged:
        raise
    except Exception as error:
        raise PluginFailed(f"{where}: {described(protocol.name, error)}") from error


@contextmanager
def failures_of_reader(protocol: ProtocolDefinition, where: str) -> Iterator[None]:
    """Do the same for code that reads a file, which refuses it with a `UserError`."""
    with failures_of(protocol, where, passes=(UserError,)):
        yield


def described(protocol: str, error: Exception) -> str:
    """Return in one line what a protocol's plugin has raised, and where."""
    found = next((each for each in discover("validator.protocols") if each.name == protocol), None)
    owner = "" if found is None else f" of {found.distribution} {found.distribution_version}"
    text = " ".join(str(error).split())
    return (
        f"plugin {protocol}{owner} raised {type(error).__name__} at {_place(found, error)}{f': {text}' if text else ''}"
    )


def _place(found: Found | None, error: Exception) -> str:
    """Return file and line: the last ones in the plugin's own package, else where the exception was raised."""
    package = "" if found is None else found.value.partition(":")[0].partition(".")[0]
    frames = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
    ]
    own = [frame for frame in frames if package and frame[0].partition(".")[0] == package]
    _, file, line = (own or frames)[-1]
    parts = Path(file).parts
    start = max((at for at, part in enumerate(parts) if part in (package, f"{package}.py")), default=len(parts) - 1)
    return f"{Path(*parts[start:])}:{line}"


EXACT = "_set"
"""Suffix of a state key that lists all keys of another one, unless the protocol itself has a state key of that name."""


def expects_anything(expect: dict[str, Any]) -> bool:
    """Return whether an expectation of a step names anything that can differ."""
    return any(
        _has_value(value) if key == "state" else bool(value) or key == "dispatched" for key, value in expect.items()
    )


def _has_value(expected: Any) -> bool:
    return any(map(_has_value, expected.values())) if isinstance(expected, dict) else True


def check_state_keys(state: Node, protocol: ProtocolDefinition) -> list[str]:
    """Return a warning for each key that no state of the protocol has.

    Raises `UserError` for a key below a state key that is no para or no channel: ``null`` would match whatever the state holds.
    """
    traces = protocol.traces
    for names, is_good, wanted in (
        (traces.para_keys, _is_para, 'a para as the key, such as "2000"'),
        (traces.channel_keys, _is_channel, 'a channel as the key, such as "2000->2004"'),
    ):
        for name in names:
            expected = state[name].value if state.has(name) else None
            for key in expected if isinstance(expected, dict) else ():
                if not is_good(key):
                    raise UserError(f"{state.path}.{name}: expected {wanted}, found {printable(key)!r}")
    known = {*traces.state_keys, *(f"{key}{EXACT}" for key in traces.state_keys)}
    return [
        f"{state.path}: protocol {protocol.name} has no state key {printable(key)!r}: null, 0 and [] always match"
        for key in state.object()
        if key not in known
    ]


def _is_para(text: str) -> bool:
    return text.isascii() and text.isdecimal() and str(int(text[:11])) == text and int(text) <= U32_MAX


def _is_channel(text: str) -> bool:
    ends = text.split("->")
    return len(ends) == 2 and all(map(_is_para, ends))
