# SPDX-License-Identifier: Apache-2.0
"""The points of the contract between a plugin of upward-message handlers and the program.

Each is a function of a `Case` that raises `Broken` if the plugin violates the point, and `NotApplicable` if the point does not apply to it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from validator.core.handlers.handler import BoundHandler
from validator.core.outcomes import Dispatch, DispatchOutcome
from validator.errors import UserError
from validator.plugin.pack import pack
from validator.plugin.registry import canonical, configure
from validator.testing.case import (
    NOT_FROM_ARCHIVES,
    Broken,
    Case,
    Example,
    NotApplicable,
    Played,
    distribution_of,
    output_of,
    packable,
    play_elsewhere,
    run_python,
)
from validator.testing.harness import Harness
from validator.testing.lint import lint_module

HASH_SEEDS: Final = ("0", "1", "2", "random")
"""Values of PYTHONHASHSEED under which the examples have to give the same outputs."""

BUDGETS_MAX: Final = 100
"""Evenly spread weight budgets to try per example, in addition to those around the weight that each call needs."""


def accepts_its_examples(case: Case) -> None:
    """Every example is dispatched with outcome ok, by a handler of this plugin."""
    _need_examples(case)
    for played in case.play():
        if played.dispatch.outcome is not DispatchOutcome.OK:
            raise Broken(f"{_name(played.example)}: expected ok, found {_end(played.dispatch)}")


def shows_every_kind(case: Case) -> None:
    """Every kind of message that the plugin accepts has an example: a kind without one is not checked."""
    _need_examples(case)
    shown = {played.dispatch.kind for played in case.play()}
    missing = sorted({bound.handler.kind for bound in case.chain().handlers} - shown)
    if missing:
        raise Broken(f"no example is of kind {', '.join(missing)}")


def is_the_same_twice(case: Case) -> None:
    """Two runs in one process give the same dispatch records, plugin state and state root."""
    _need_examples(case)
    _compare(case, case.outputs(), case.outputs(), "a second run in the same process")


def is_the_same_under_every_hash_seed(case: Case) -> None:
    """Runs under other seeds of Python's string hashes give the same outputs: nothing depends on the order of a set."""
    _need_examples(case)
    first, *others = [play_elsewhere(case, hash_seed=seed)["outputs"] for seed in HASH_SEEDS]
    for seed, other in zip(HASH_SEEDS[1:], others, strict=True):
        _compare(case, first, other, f"PYTHONHASHSEED={seed}, compared with {HASH_SEEDS[0]},")


def survives_a_restart(case: Case) -> None:
    """A repeated example has the same output whether or not the job restarts in between."""
    _need_examples(case)
    for example in case.examples:
        ends: list[dict[str, Any]] = []
        for restarts in (False, True):
            harness = case.chain(example)
            harness.send(example.payload, example.para)
            if restarts:
                harness.restart()
            ends.append(output_of(Played(example, harness, harness.send(example.payload, example.para))))
        _compare_one(example, ends[0], ends[1], "sent again after a restart, it")


def leaves_nothing_of_a_failed_message(case: Case) -> None:
    """A fault at any context call fails the message and rolls everything back."""
    _need_examples(case)
    for played in case.play():
        for call, name in enumerate(played.harness.call_names, start=1):
            harness = case.chain(played.example)
            before = snapshot(harness)
            harness.fail_at(call)
            dispatch = harness.send(played.example.payload, played.example.para)
            where = f"{_name(played.example)}, a fault at call {call} ({name})"
            if dispatch.outcome is not DispatchOutcome.FAILED:
                raise Broken(
                    f"{where}: expected a failed message, found {_end(dispatch)}: catch only ContextError and Violation"
                )
            _compare_chain(where, before, harness)


def is_bounded_by_weight(case: Case) -> None:
    """An example uses weight; with any less, it ends as out_of_weight and leaves nothing."""
    _need_examples(case)
    for played in case.play():
        used = played.dispatch.weight
        if played.dispatch.outcome is not DispatchOutcome.OK:
            continue  # reported by `accepts_its_examples`
        if used < 1:
            raise Broken(f"{_name(played.example)}: expected a weight of at least 1, found {used}")
        base = next(_taking(played)).handler.weight.of(played.example.payload)
        for budget in _budgets(used, [base, *played.harness.call_weights]):
            harness = case.chain(played.example, weight_max=budget)
            before = snapshot(harness)
            dispatch = harness.send(played.example.payload, played.example.para)
            where = f"{_name(played.example)}, which uses a weight of {used}, with {budget}"
            if dispatch.outcome is not DispatchOutcome.OUT_OF_WEIGHT:
                raise Broken(f"{where}: expected out_of_weight, found {_end(dispatch)}")
            _compare_chain(where, before, harness)


def refuses_oversize_payloads(case: Case) -> None:
    """A payload one byte over the handler's limit fails without a call; if ``decode`` decides, it may have no handler instead."""
    _need_examples(case)
    for played in case.play():
        bound = next(_taking(played), None)
        if bound is None:
            continue  # reported by `accepts_its_examples`
        size = bound.handler.payload_bytes_max + 1
        payload = played.example.payload.ljust(size, b"\x00")
        harness = case.chain(played.example)
        before = snapshot(harness)
        dispatch = harness.send(payload, played.example.para)
        where = f"{_name(played.example)}, padded to {len(payload)} bytes"
        refused = (dispatch.failure or "").startswith("OversizePayload") and dispatch.outcome is DispatchOutcome.FAILED
        others = not bound.handler.prefix and dispatch.outcome is DispatchOutcome.NO_HANDLER
        if not refused and not others:
            raise Broken(f"{where}: expected OversizePayload, found {_end(dispatch)}")
        if harness.calls:
            raise Broken(f"{where}: expected no context call, found {', '.join(harness.call_names)}")
        _compare_chain(where, before, harness)


def works_from_an_archive(case: Case) -> None:
    """The plugin is found and runs from its wheel's content as a .zip on the path, as Spark ships it to executors."""
    _need_examples(case)
    case.module()
    source = packable(distribution_of(case.loaded()))
    with tempfile.TemporaryDirectory() as folder:
        try:
            archive = pack(source, Path(folder)).path
        except UserError as error:
            raise (NotApplicable if NOT_FROM_ARCHIVES in str(error) else Broken)(str(error)) from None
        elsewhere = play_elsewhere(case, first_on_path=[str(archive)])
        if not elsewhere["file"].startswith(f"{archive}/"):
            raise Broken(f"expected its module to be imported from the archive, found {elsewhere['file']}")
        if not any(file.startswith(str(archive)) for _, file in elsewhere["entries"]):
            raise Broken("its entry point is not found in the archive")
    _compare(case, case.outputs(), elsewhere["outputs"], "the run from the archive")


def has_a_configuration_that_survives_json(case: Case) -> None:
    """The configuration survives a round trip through JSON, and the examples do not change it."""
    plugin = case.loaded()
    kind = plugin.manifest.config_type
    if kind is None:
        raise NotApplicable("the plugin has no configuration")
    written: TypeAdapter[Any] = TypeAdapter(kind)
    config = configure(plugin, canonical(dict(case.config)))
    values = canonical(written.dump_python(config, mode="json"))
    again = configure(plugin, values)
    if again != config:
        raise Broken(f"{config} is written as {values}, which is read as {again}")
    for played in case.play():
        for bound in played.harness.handlers:
            after = canonical(written.dump_python(bound.config, mode="json"))
            if after != values:
                raise Broken(f"{_name(played.example)}: the handler changes its configuration from {values} to {after}")


def has_a_readme_that_runs(case: Case) -> None:
    """The README's Python examples run, one after the other, in one namespace."""
    if case.readme is None:
        raise NotApplicable("no README is named")
    text = case.readme.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if not blocks:
        raise Broken(f"{case.readme.name}: no example in a ```python block")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "readme_examples.py")
        program.write_text(_README_PROGRAM.format(blocks=blocks, name=case.readme.name), encoding="utf-8")
        run = run_python([str(program)], cwd=Path(folder))
    if run.returncode != 0:
        raise Broken(f"{case.readme.name}: its examples do not run:\n{(run.stdout + run.stderr).strip()}")


def is_clean(case: Case) -> None:
    """The lint finds nothing in the plugin's module, nor in what that imports from its own package."""
    findings = lint_module(case.module())
    if findings:
        raise Broken("\n".join(map(str, findings)))


def snapshot(harness: Harness) -> dict[str, Any]:
    """Return everything that a message may change, by name."""
    paras = sorted(harness.paras)
    return {
        "state": harness.state,
        "downward queues": {para: harness.downward(para) for para in paras},
        "balances": {para: (harness.balance(para), harness.reserved(para)) for para in paras},
        "channels": harness.channels,
        "open requests": harness.open_requests,
        "close requests": harness.close_requests,
        "state root": harness.state_root.hex(),
    }


_README_PROGRAM = """\
import doctest
namespace = {{"__name__": "__main__"}}
for at, block in enumerate({blocks!r}, start=1):
    where = {name!r} + f", example {{at}}"
    if ">>>" in block:
        test = doctest.DocTestParser().get_doctest(block, namespace, where, where, 0)
        if doctest.DocTestRunner().run(test, clear_globs=False).failed:
            raise SystemExit(1)
        namespace.update(test.globs)
    else:
        exec(compile(block, where, "exec"), namespace)
"""


def _need_examples(case: Case) -> None:
    if not case.examples:
        raise NotApplicable("no examples are given")


def _taking(played: Played) -> Iterator[BoundHandler]:
    return (bound for bound in played.harness.handlers if bound.handler.kind == played.dispatch.kind)


def _budgets(used: int, calls: list[int]) -> Iterator[int]:
    """Yield budgets below a weight, ascending: all of them, or evenly spread ones and those around the weight after each call."""
    if used <= BUDGETS_MAX:
        yield from range(used)
        return
    spread = range(0, used, max(1, used // BUDGETS_MAX))
    edges = [edge for weight in (*calls, used) for edge in (weight - 1, weight) if 0 <= edge < used]
    yield from sorted({*spread, *edges})


def _compare(case: Case, expected: list[Any], found: list[Any], what: str) -> None:
    for example, one, other in zip(case.examples, expected, found, strict=True):
        _compare_one(example, one, other, what)


def _compare_one(example: Example, expected: dict[str, Any], found: dict[str, Any], what: str) -> None:
    for key, value in expected.items():
        if found[key] != value:
            shown = f"expected {json.dumps(value)}, found {json.dumps(found[key])}"
            raise Broken(f"{_name(example)}: {what} has a different {key}: {shown}")


def _compare_chain(where: str, before: dict[str, Any], harness: Harness) -> None:
    after = snapshot(harness)
    for name, value in before.items():
        if after[name] != value:
            raise Broken(f"{where}: {name} changed from {value} to {after[name]}")
    if harness.channel_events:
        raise Broken(f"{where}: channel events are left: {harness.channel_events}")


def _name(example: Example) -> str:
    text = example.payload.hex()
    return f"example {text if len(text) <= 40 else text[:37] + '...'} of para {example.para}"


def _end(dispatch: Dispatch) -> str:
    return dispatch.outcome.value if dispatch.failure is None else f"{dispatch.outcome.value} ({dispatch.failure})"


__all__ = [
    "accepts_its_examples",
    "has_a_configuration_that_survives_json",
    "has_a_readme_that_runs",
    "is_bounded_by_weight",
    "is_clean",
    "is_the_same_twice",
    "is_the_same_under_every_hash_seed",
    "leaves_nothing_of_a_failed_message",
    "refuses_oversize_payloads",
    "shows_every_kind",
    "snapshot",
    "survives_a_restart",
    "works_from_an_archive",
]
