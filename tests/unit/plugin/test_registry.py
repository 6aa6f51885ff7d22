# SPDX-License-Identifier: Apache-2.0
"""Plugins and jobs that cannot be used: exactly one line for each mistake, and all mistakes at once."""

from __future__ import annotations

import itertools
import re
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from tests.unit.plugin.distributions import HANDLERS, IMPORTS, MANIFEST, install, on_path, plugin_source
from validator.config import Config
from validator.errors import UserError
from validator.job.installed import configured_job, of_job
from validator.plugin import job_api
from validator.plugin.api import API_VERSION
from validator.plugin.job_api import JobContext, open_job
from validator.plugin.registry import PluginError, discover, installed, load, load_all
from validator.plugin.runtime import HandlerUse, Runtime, RuntimePlan, make_runtime

WHO = MANIFEST.format(name="memo", version="1.0.0")
WHAT = HANDLERS.format(kind="memo", prefix="01")
HOOKS = "the hooks of this group are validator_handlers(config), validator_manifest()"
FIX = "fix its configuration"

CONFIG = f"""\
{IMPORTS}
from dataclasses import dataclass

@dataclass(frozen=True)
class Fee:
    __pydantic_config__ = {{"extra": "forbid"}}
    base: int = 1

@dataclass(frozen=True)
class Config:
    pallet: int
    deposit: int = 5
    names: tuple[str, ...] = ()
    fees: tuple[Fee, ...] = ()

    def __post_init__(self):
        if self.deposit > 9:
            raise ValueError("deposit: expected at most 9")

{WHO.replace("(2, 0))", "(2, 0), Config)")}
{WHAT}
"""


def errors_of(folder: Path, *uses: HandlerUse) -> list[str]:
    """Return the lines of the error, with DIR in place of the folder and MODULE in place of a module."""
    with on_path(folder), pytest.raises(PluginError) as caught:
        make_runtime(RuntimePlan("router", handlers=uses or (HandlerUse("memo"),)))
    lines = str(caught.value).splitlines()
    if len(lines) > 1:
        assert lines.pop(0) == f"{len(lines)} problems with plugins:"
    assert [str(problem) for problem in caught.value.problems] == [line.removeprefix("  ") for line in lines]
    return [re.sub(r"\bplugin_\d+", "MODULE", line.strip().replace(str(folder), "DIR")) for line in lines]


# --- one mistake, one line ---


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("raise RuntimeError('no luck')", "importing MODULE failed (RuntimeError: no luck): fix or remove the plugin"),
        ("import sys; sys.exit(3)", "importing MODULE failed (SystemExit: 3): fix or remove the plugin"),
        (
            "def (",
            "importing MODULE failed (SyntaxError: invalid syntax (MODULE.py, line 1)): fix or remove the plugin",
        ),
        (
            "import nothing_of_the_kind",
            (
                "importing MODULE failed (ModuleNotFoundError: No module named 'nothing_of_the_kind'): "
                "install the package that provides 'nothing_of_the_kind', or remove the plugin"
            ),
        ),
        (
            f"{IMPORTS}{WHO}{WHAT}@hookimpl\ndef validator_handlerz(config): ...\n",
            f"unknown hook validator_handlerz, did you mean validator_handlers: {HOOKS}",
        ),
        (f"{IMPORTS}{WHO}{WHAT}@hookimpl\ndef on_message(config): ...\n", f"unknown hook on_message: {HOOKS}"),
        (
            f"{IMPORTS}{WHO}{WHAT.replace('@hookimpl', '')}",
            "it has no hook validator_handlers: define it, marked with @hookimpl",
        ),
        (
            IMPORTS,
            "it has no hook validator_handlers and no hook validator_manifest: define it, marked with @hookimpl",
        ),
        (
            f"{IMPORTS}{WHO}@hookimpl\ndef validator_handlers(config, chain): ...\n",
            f"validator_handlers has an argument that is not passed to it (chain): {HOOKS}",
        ),
        (
            f"{IMPORTS}{WHO}@hookimpl\ndef validator_handlers(config=None): ...\n",
            f"validator_handlers has an argument with a default (config): {HOOKS}",
        ),
        (
            f"{IMPORTS}{WHO}@hookimpl\ndef validator_handlers(*config): ...\n",
            f"validator_handlers has an argument that is not plainly positional (config): {HOOKS}",
        ),
        (
            f"{IMPORTS}{WHO}@hookimpl\nasync def validator_handlers(config): ...\n",
            f"validator_handlers is a coroutine function: {HOOKS}",
        ),
        (
            f"{IMPORTS}{WHO}@hookimpl(wrapper=True)\ndef validator_handlers(config):\n    return (yield)\n",
            f"validator_handlers is a wrapper: {HOOKS}",
        ),
        (
            f"{IMPORTS}{WHO}{WHAT}@hookimpl(specname='validator_handlers')\ndef more(config): ...\n",
            f"more and validator_handlers both implement validator_handlers: {HOOKS}",
        ),
        (
            f"{IMPORTS}{WHAT}@hookimpl\ndef validator_manifest(): raise KeyError('name')\n",
            "validator_manifest raised KeyError: 'name': fix the plugin",
        ),
        (
            f"{IMPORTS}{WHAT}@hookimpl\ndef validator_manifest(): return 'memo'\n",
            "validator_manifest returned str: return a Manifest",
        ),
        (
            f"{IMPORTS}{WHAT}{WHO.replace('memo', 'Me mo')}",
            "validator_manifest raised ValueError: manifest name: expected 1 to 64 of a-z 0-9 . _ -, found 'Me mo': fix the plugin",
        ),
        (
            f"{IMPORTS}{WHAT}{WHO.replace('1.0.0', 'one')}",
            "validator_manifest raised ValueError: manifest version: expected a version such as 1.0.0, found 'one': fix the plugin",
        ),
        (
            f"{IMPORTS}{WHAT}{WHO.replace('(2, 0)', '1')}",
            "validator_manifest raised ValueError: manifest api_version: expected (major, minor), found 1: fix the plugin",
        ),
        (
            f"{IMPORTS}{WHAT}{WHO.replace('(2, 0)', '(2, 0), dict')}",
            (
                "validator_manifest raised ValueError: manifest config_type: expected a frozen dataclass, found <class 'dict'>: "
                "fix the plugin"
            ),
        ),
        (
            f"{IMPORTS}{WHAT}{WHO.replace('memo', 'other')}",
            "its manifest's name is 'other': name the entry point other, or other@<anything>",
        ),
        (
            f"{IMPORTS}{WHAT}{WHO.replace('(2, 0)', '(3, 0)')}",
            "it was written for API 3.0, this validator has 2.0: install a validator with that API",
        ),
        (
            f"{IMPORTS}{WHAT}{WHO.replace('(2, 0)', '(2, 1)')}",
            "it was written for API 2.1, this validator has 2.0: install a validator with that API",
        ),
        (
            f"{IMPORTS}{WHAT}{WHO.replace('(2, 0)', '(1, 5)')}",
            "it was written for API 1.5, this validator has 2.0: install a later version of the plugin",
        ),
    ],
)
def test_plugin_that_does_not_load_is_reported_in_one_line(tmp_path: Path, source: str, line: str) -> None:
    assert API_VERSION == (2, 0), "the lines above name it"
    install(tmp_path, "memo", source)
    assert errors_of(tmp_path) == [f"memo (dist-memo 1.0.0, DIR/MODULE.py): {line}"]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("yield from (1, 'x')", "validator_handlers yielded int, str: yield records of class Handler only"),
        ("return 7", "validator_handlers raised TypeError: 'int' object is not iterable: fix the plugin"),
        ("raise ValueError('no good')", "validator_handlers raised ValueError: no good: fix the plugin"),
        ("yield 1 / 0", "validator_handlers raised ZeroDivisionError: division by zero: fix the plugin"),
        ("raise SystemExit", "validator_handlers raised SystemExit: fix the plugin"),
        (
            "yield Handler('a', print, MessageWeight(-1), b'1')",
            "validator_handlers raised ValueError: weight.base: expected an integer from 0 to 4398046511103, found -1: fix the plugin",
        ),
    ],
)
def test_hook_that_raises_or_yields_wrong_type_is_reported(tmp_path: Path, body: str, line: str) -> None:
    install(tmp_path, "memo", f"{IMPORTS}{WHO}@hookimpl\ndef validator_handlers(config):\n    {body}\n")
    assert errors_of(tmp_path) == [f"memo@1.0.0 (dist-memo 1.0.0, DIR/MODULE.py): {line}"]


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        ("{}", ["config.pallet: expected a value, found none"]),
        ('{"pallet":"x"}', ['config.pallet: expected an integer, found "x"']),
        ('{"pallet":1.0}', ["config.pallet: expected an integer, found 1.0"]),
        ('{"deposit":true,"pallet":1}', ["config.deposit: expected an integer, found true"]),
        ('{"names":["a",1],"pallet":1}', ["config.names.1: expected a string, found 1"]),
        ('{"fees":[{"bas":2}],"pallet":1}', ["config.fees.0.bas: no such key"]),
        ('{"deposit":10,"pallet":1}', ["config: deposit: expected at most 9"]),
        (
            '{"palet":1}',
            [
                "config.palet: no such key, known are pallet, deposit, names, fees",
                "config.pallet: expected a value, found none",
            ],
        ),
    ],
)
def test_invalid_plugin_configuration_is_reported(tmp_path: Path, config: str, lines: list[str]) -> None:
    install(tmp_path, "memo", CONFIG)
    who = "memo@1.0.0 (dist-memo 1.0.0, DIR/MODULE.py)"
    assert errors_of(tmp_path, HandlerUse("memo", config=config)) == [f"{who}: {line}: {FIX}" for line in lines]


def test_configuration_for_plugin_without_one_is_refused(tmp_path: Path) -> None:
    install(tmp_path, "memo", plugin_source("memo"))
    assert errors_of(tmp_path, HandlerUse("memo", config='{"b":1,"a":2}')) == [
        "memo@1.0.0 (dist-memo 1.0.0, DIR/MODULE.py): it has no configuration, found config.a, config.b: remove it"
    ]


def test_configuration_reaches_hook(tmp_path: Path) -> None:
    install(tmp_path, "memo", CONFIG)
    with on_path(tmp_path):
        plan = RuntimePlan("router", handlers=(HandlerUse("memo", config='{"names":["a"],"pallet":7}'),))
        (epoch,) = make_runtime(plan).handlers or ()
        (bound,) = epoch.table.handlers
        assert (bound.config.pallet, bound.config.deposit, bound.config.names) == (7, 5, ("a",))


# --- more than one plugin ---


def test_same_plugin_in_two_distributions_is_refused(tmp_path: Path) -> None:
    install(tmp_path, "memo", plugin_source("memo"), distribution="one")
    install(tmp_path, "memo", plugin_source("memo"), distribution="two")
    assert errors_of(tmp_path) == [
        (
            "memo@1.0.0 (one 1.0.0, DIR/MODULE.py): memo@1.0.0 (two 1.0.0, DIR/MODULE.py) has the same name and version: "
            "remove one of them, or give it another version"
        )
    ]


def test_one_of_two_installed_versions_must_be_named(tmp_path: Path) -> None:
    for version in ("1.0.0", "2.0.0"):
        source = plugin_source("memo", version)
        install(tmp_path, "memo", source, distribution=f"memo-{version[0]}", entry_name=f"memo@{version[0]}")
    assert errors_of(tmp_path) == ["memo: versions 1.0.0, 2.0.0 are installed: give the version"]
    assert errors_of(tmp_path, HandlerUse("memo", "3.0.0")) == [
        (
            "memo@3.0.0: this version is not installed, found 1.0.0, 2.0.0: "
            "install it, next to the others if they are still needed, as a separate distribution and module"
        )
    ]
    with on_path(tmp_path):
        runtime = make_runtime(RuntimePlan("router", handlers=(HandlerUse("memo", "2.0.0"),)))
        assert [bound.name for bound in (runtime.handlers or ())[0].table.handlers] == ["memo@2.0.0"]


def test_two_owners_of_kind_or_prefix_are_refused(tmp_path: Path) -> None:
    install(tmp_path, "one", plugin_source("one", kind="memo", prefix="01"))
    install(tmp_path, "two", plugin_source("two", kind="memo", prefix="02"))
    install(tmp_path, "three", plugin_source("three", kind="note", prefix="0203"))
    assert errors_of(tmp_path, HandlerUse("one"), HandlerUse("two"), HandlerUse("three", from_block=9)) == [
        "from block 0 on: kind 'memo' has two owners, one@1.0.0 and two@1.0.0: leave one of them out",
        "from block 9 on: kind 'memo' has two owners, one@1.0.0 and two@1.0.0: leave one of them out",
        (
            "from block 9 on: payloads that start with 0203 have two owners, three@1.0.0 (note) and two@1.0.0 (memo): "
            "leave one of them out"
        ),
    ]


def test_missing_plugin_is_refused(tmp_path: Path) -> None:
    install(tmp_path, "memo", plugin_source("memo"))
    with on_path(tmp_path):
        known = ", ".join(sorted({found.name for found in discover("validator.handlers")}))
    assert errors_of(tmp_path, HandlerUse("memmo")) == [
        f"memmo: no installed plugin of group validator.handlers has this name: install it; installed are: {known}"
    ]


def test_missing_or_unyielded_protocol_is_refused(tmp_path: Path) -> None:
    install(
        tmp_path,
        "xcm",
        f"{IMPORTS}{MANIFEST.format(name='xcm', version='1')}@hookimpl\ndef validator_protocols(): return []\n",
        group="validator.protocols",
    )
    with on_path(tmp_path):
        with pytest.raises(
            PluginError, match=r"^umpf: no installed plugin of group validator\.protocols has this name: "
        ):
            make_runtime(RuntimePlan("umpf"))
        with pytest.raises(
            PluginError, match=r"^xcm@1 \(dist-xcm 1\.0\.0, .*\): it yields no protocol 'xcm': fix the plugin$"
        ):
            make_runtime(RuntimePlan("xcm"))


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    install(tmp_path, "broken", "raise RuntimeError('no luck')")
    install(tmp_path, "misfit", f"{IMPORTS}@hookimpl\ndef validator_handlerz(chain): ...\n@hookimpl\ndef x(): ...\n")
    install(tmp_path, "memo", CONFIG)
    install(tmp_path, "fine", plugin_source("fine", prefix="07"))
    uses = (
        HandlerUse("broken"),
        HandlerUse("misfit"),
        HandlerUse("memo", config='{"deposit":"x"}'),
        HandlerUse("fine", version="9"),
    )
    lines = errors_of(tmp_path, *uses, HandlerUse("absent"))
    assert lines.pop(3).startswith(
        "absent: no installed plugin of group validator.handlers has this name: install it; "
    )
    who = "memo@1.0.0 (dist-memo 1.0.0, DIR/MODULE.py)"
    assert lines == [
        "broken (dist-broken 1.0.0, DIR/MODULE.py): importing MODULE failed (RuntimeError: no luck): fix or remove the plugin",
        f"misfit (dist-misfit 1.0.0, DIR/MODULE.py): unknown hook validator_handlerz, did you mean validator_handlers: {HOOKS}",
        f"misfit (dist-misfit 1.0.0, DIR/MODULE.py): unknown hook x: {HOOKS}",
        f"{who}: config.pallet: expected a value, found none: {FIX}",
        f'{who}: config.deposit: expected an integer, found "x": {FIX}',
        (
            "fine@9: this version is not installed, found 1.0.0: install it, next to the others if they are still needed, as a "
            "separate distribution and module"
        ),
    ]


def test_unnamed_plugin_is_not_imported(tmp_path: Path) -> None:
    install(tmp_path, "broken", "raise RuntimeError('no luck')")
    install(tmp_path, "memo", plugin_source("memo"))
    with on_path(tmp_path):
        make_runtime(RuntimePlan("router", handlers=(HandlerUse("memo"),)))
        assert list(installed("validator.handlers", ["memo"])) == [("memo", "1.0.0")]


def test_broken_plugin_does_not_affect_others(tmp_path: Path) -> None:
    install(tmp_path, "broken", "raise RuntimeError('no luck')")
    install(tmp_path, "memo", plugin_source("memo"))
    with on_path(tmp_path):
        mine = [found for found in discover("validator.handlers") if found.file.startswith(str(tmp_path))]
        plugins, problems = load_all(mine)
    assert [plugin.manifest.name for plugin in plugins] == ["memo"]
    assert [problem.plugin.partition(" ")[0] for problem in problems] == ["broken"]


# --- order does not matter ---


def test_order_of_path_does_not_matter(tmp_path: Path) -> None:
    names = ("alpha", "beta", "gamma")
    for at, name in enumerate(names):
        install(tmp_path / name, name, plugin_source(name, prefix=f"0{at + 1}"))
    found, runtimes = [], []
    for order in itertools.permutations(names):
        with on_path(*(tmp_path / name for name in order)):
            found.append([each for each in discover() if each.name in names])
            for uses in itertools.permutations(map(HandlerUse, names)):
                make_runtime.cache_clear()
                runtimes.append(make_runtime(RuntimePlan("router", handlers=uses)))
    assert [each.name for each in found[0]] == list(names)
    assert all(each == found[0] for each in found)
    assert len({runtime.digest for runtime in runtimes}) == 1
    assert len({order_of(runtime) for runtime in runtimes}) == 1


def order_of(runtime: Runtime) -> tuple[str, ...]:
    return tuple(bound.name for epoch in runtime.handlers or () for bound in epoch.table.handlers)


def test_order_of_path_does_not_change_errors(tmp_path: Path) -> None:
    for name in ("one", "two"):
        install(tmp_path / name, "memo", plugin_source("memo"), distribution=name)
    texts = set()
    for order in (("one", "two"), ("two", "one")):
        with on_path(*(tmp_path / name for name in order)), pytest.raises(PluginError) as caught:
            make_runtime(RuntimePlan("router", handlers=(HandlerUse("memo"),)))
        texts.add(str(caught.value))
    assert len(texts) == 1


def test_distribution_found_twice_counts_once_despite_spelling(tmp_path: Path) -> None:
    install(tmp_path / "first", "memo", plugin_source("memo", "2.0.0"), distribution="Memo.Kind", version="2.0.0")
    install(tmp_path / "second", "memo", plugin_source("memo"), distribution="memo-kind")
    with on_path(tmp_path / "first", tmp_path / "second"):
        (found,) = [each for each in discover("validator.handlers") if each.name == "memo"]
        assert load(found).manifest.version == "2.0.0"


def test_a_job_gets_its_table_and_the_chains() -> None:
    config = Config.model_validate(
        {
            "chains": {"polkadot": {"limits": {}}, "kusama": {"limits": {}}},
            "jobs": {"xcmp-bodies": {"chains": ["kusama"], "buckets": 2}},
        }
    )
    assert configured_job(config, "xcmp-bodies").keys == ("kusama/xcmp-bodies/0-2", "kusama/xcmp-bodies/1-2")


def test_a_job_has_a_folder_below_that_of_the_lanes() -> None:
    config = Config.model_validate({"job": {"directory": "/jobs"}})
    assert of_job(config, "xcmp-bodies").job.directory == "/jobs/jobs/xcmp-bodies"


def test_a_name_that_no_plugin_has_lists_those_that_there_are() -> None:
    with pytest.raises(
        UserError, match=r"job mail: no plugin of group validator.jobs has this name; installed: .*xcmp-bodies"
    ):
        open_job(JobContext("mail"))


def entries(*values: str) -> EntryPoints:
    return EntryPoints(EntryPoint("mail", value, job_api.JOBS) for value in values)


def test_two_plugins_of_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_api, "entry_points", lambda **wanted: entries("one:job", "other:job"))
    with pytest.raises(UserError, match="job mail: more than one plugin"):
        open_job(JobContext("mail"))


def test_a_plugin_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_api, "entry_points", lambda **wanted: entries("no_such_module:job"))
    with pytest.raises(UserError, match="job mail: importing no_such_module:job failed"):
        open_job(JobContext("mail"))
