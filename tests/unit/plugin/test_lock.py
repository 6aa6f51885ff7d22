# SPDX-License-Identifier: Apache-2.0
"""A lock pins plugins byte for byte, and nothing else runs."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest

from tests.distributions import install, on_path, plugin_source
from validator.config import Chain, load_config
from validator.errors import UserError
from validator.lanes.configured import chain_runtime, configured_lock, lane_definition
from validator.plugin.files import distribution_files, files_digest, find_distribution
from validator.plugin.lock import SCHEMA_VERSION, Lock, read_lock, write_lock
from validator.plugin.registry import PluginError, discover, load_all
from validator.plugin.runtime import HandlerUse, RuntimePlan, make_runtime

AGAIN = "install what it names, or rewrite it with `validator plugins lock`"


def lock_of(path: Path, *names: str) -> Lock:
    found = [each for each in discover() if each.name in (*names, "router")]
    plugins, problems = load_all(found)
    assert problems == []
    return write_lock(path, plugins)


def problems_of(lock: Lock, *names: str) -> list[str]:
    with pytest.raises(PluginError) as caught:
        make_runtime(RuntimePlan("router", handlers=tuple(map(HandlerUse, names)), lock=lock))
    return [re.sub(r"\(([^,]*), .*?\)", r"(\1)", str(problem)) for problem in caught.value.problems]


# --- the digest of a distribution's files ---


def test_digest_matches_output_of_sha256sum(tmp_path: Path) -> None:
    module = install(tmp_path, "memo", plugin_source("memo"))
    with on_path(tmp_path):
        files = distribution_files(find_distribution("Dist_Memo"))
    info = "dist_memo-1.0.0.dist-info"
    assert list(files) == [f"{info}/METADATA", f"{info}/WHEEL", f"{info}/entry_points.txt", f"{module}.py"]
    lines = "".join(f"{hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}  {name}\n" for name in files)
    assert files_digest(files) == hashlib.sha256(lines.encode()).hexdigest()


def test_digest_ignores_files_added_by_installer(tmp_path: Path) -> None:
    info = "dist_memo-1.0.0.dist-info"
    module = install(tmp_path, "memo", plugin_source("memo"))
    with on_path(tmp_path):
        before = files_digest(distribution_files(find_distribution("dist-memo")))
    record = tmp_path / info / "RECORD"
    added = (f"{info}/INSTALLER", f"{info}/direct_url.json", f"__pycache__/{module}.cpython-311.pyc", "../bin/memo")
    for name in added:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    record.write_text(record.read_text() + "".join(f"{name},,\n" for name in added))
    with on_path(tmp_path):
        assert files_digest(distribution_files(find_distribution("dist-memo"))) == before
    (tmp_path / f"{module}.py").write_text(plugin_source("memo") + "\n")
    with on_path(tmp_path):
        assert files_digest(distribution_files(find_distribution("dist-memo"))) != before


def test_distribution_without_record_or_with_missing_file_is_refused(tmp_path: Path) -> None:
    module = install(tmp_path, "memo", plugin_source("memo"))
    with on_path(tmp_path):
        (tmp_path / f"{module}.py").unlink()
        with pytest.raises(
            UserError, match=rf"^distribution dist-memo 1\.0\.0: its file {module}\.py is missing: install it again$"
        ):
            distribution_files(find_distribution("dist-memo"))
        (tmp_path / "dist_memo-1.0.0.dist-info" / "RECORD").unlink()
        with pytest.raises(
            UserError, match=r"^distribution dist-memo 1\.0\.0: expected a RECORD of its files, found none"
        ):
            distribution_files(find_distribution("dist-memo"))
        with pytest.raises(UserError, match=r"^distribution 'absent': expected one that is installed"):
            find_distribution("absent")


# --- the file ---


def test_lock_file_is_canonical(tmp_path: Path) -> None:
    install(tmp_path, "memo", plugin_source("memo"))
    with on_path(tmp_path):
        lock = lock_of(tmp_path / "one", "memo")
        digest = files_digest(distribution_files(find_distribution("dist-memo")))
        assert read_lock(tmp_path / "one") == lock
        plugins, _ = load_all(reversed([each for each in discover() if each.name in ("memo", "router")]))
        write_lock(tmp_path / "two", plugins)
    text = (tmp_path / "one").read_text()
    assert text == (tmp_path / "two").read_text()
    document = json.loads(text)
    assert text == json.dumps(document, indent=2, sort_keys=True) + "\n"
    assert document["schema_version"] == SCHEMA_VERSION == 1
    assert document["plugins"][0] == {
        "group": "validator.handlers",
        "name": "memo",
        "version": "1.0.0",
        "distribution": "dist-memo",
        "distribution_version": "1.0.0",
        "sha256": digest,
    }


def test_two_machines_write_same_lock(tmp_path: Path) -> None:
    source = plugin_source("memo")
    texts = []
    for machine in ("one", "two"):
        folder = tmp_path / machine
        module = install(folder, "memo", source)
        same = folder / "same_module.py"  # the tests' installer gives each module a new name
        (folder / f"{module}.py").rename(same)
        for path in (folder / "dist_memo-1.0.0.dist-info").iterdir():
            path.write_text(path.read_text().replace(module, "same_module"))
        with on_path(folder):
            lock_of(tmp_path / f"{machine}.lock", "memo")
        texts.append((tmp_path / f"{machine}.lock").read_text())
        sys.modules.pop("same_module", None)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[]", ": expected an object, found []"),
        ("{}", ": key 'schema_version' is missing"),
        ('{"schema_version": 2}', ".schema_version: expected 1, which this validator reads, found 2"),
        ('{"schema_version": 1, "plugins": {}}', ".plugins: expected an array, found {}"),
        (
            '{"schema_version": 1, "plugins": [{"group": "x"}]}',
            '.plugins[0].group: expected one of validator.handlers, validator.protocols, validator.transports, found "x"',
        ),
        ('{"schema_version": 1, "plugins": [{"group": "validator.handlers"}]}', ".plugins[0]: key 'name' is missing"),
    ],
)
def test_file_that_is_not_a_lock_is_refused(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "plugins.lock"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_lock(path)
    assert str(caught.value) == f"{path}{line}"


# --- enforcement ---


def test_locked_plugin_runs(tmp_path: Path) -> None:
    install(tmp_path, "memo", plugin_source("memo"))
    with on_path(tmp_path):
        plan = RuntimePlan("router", handlers=(HandlerUse("memo"),), lock=lock_of(tmp_path / "plugins.lock", "memo"))
        assert make_runtime(plan).digest == make_runtime(RuntimePlan("router", handlers=plan.handlers)).digest


def test_all_lock_violations_are_reported_before_any_import(tmp_path: Path) -> None:
    names = ("changed", "moved", "newer", "fine")
    modules = {
        name: install(tmp_path, name, plugin_source(name, prefix=f"0{at}")) for at, name in enumerate(names, start=1)
    }
    with on_path(tmp_path):
        lock = lock_of(tmp_path / "plugins.lock", *names)
    by_name = {entry.name: entry for entry in lock}
    (tmp_path / f"{modules['changed']}.py").write_text("raise AssertionError('it was imported')")
    for name in ("moved", "newer"):
        (tmp_path / f"{modules[name]}.py").unlink()
        for path in (tmp_path / f"dist_{name}-1.0.0.dist-info").iterdir():
            path.unlink()
        (tmp_path / f"dist_{name}-1.0.0.dist-info").rmdir()
    install(tmp_path, "moved", "raise AssertionError('it was imported')", distribution="another")
    install(tmp_path, "newer", "raise AssertionError('it was imported')", version="2.0.0")
    install(tmp_path, "stranger", "raise AssertionError('it was imported')")
    with on_path(tmp_path):
        lines = problems_of(lock, *names, "stranger")
        now = files_digest(distribution_files(find_distribution("dist-changed")))
    assert lines == [
        f"changed (dist-changed 1.0.0): its files have the hash {now}, the lock has {by_name['changed'].sha256}: {AGAIN}",
        f"moved (another 1.0.0): the lock has it from dist-moved 1.0.0: {AGAIN}",
        f"newer (dist-newer 2.0.0): the lock has it from dist-newer 1.0.0: {AGAIN}",
        f"stranger (dist-stranger 1.0.0): the lock does not name it: {AGAIN}",
    ]


def test_editable_distribution_is_locked_by_version_only(tmp_path: Path) -> None:
    editable = {"dist_memo-1.0.0.dist-info/direct_url.json": b'{"dir_info": {"editable": true}, "url": "file:///x"}'}
    module = install(tmp_path, "memo", plugin_source("memo"), files=editable)
    with on_path(tmp_path):
        lock = lock_of(tmp_path / "plugins.lock", "memo")
        assert [entry.sha256 for entry in lock if entry.name == "memo"] == [None]
        make_runtime(RuntimePlan("router", handlers=(HandlerUse("memo"),), lock=lock))
    (tmp_path / f"{module}.py").write_text(plugin_source("memo", version="1.0.1"))
    with on_path(tmp_path):
        assert problems_of(lock, "memo") == [f"memo@1.0.1 (dist-memo 1.0.0): the lock has version 1.0.0: {AGAIN}"]
    (tmp_path / "dist_memo-1.0.0.dist-info/direct_url.json").unlink()
    record = tmp_path / "dist_memo-1.0.0.dist-info/RECORD"
    record.write_text(
        "".join(line for line in record.read_text().splitlines(keepends=True) if "direct_url" not in line)
    )
    with on_path(tmp_path):
        assert problems_of(lock, "memo") == [
            f"memo (dist-memo 1.0.0): the lock was written when it was installed editable, now it is not: {AGAIN}"
        ]


# --- the configuration ---


def test_lanes_enforce_lock_from_configuration(tmp_path: Path) -> None:
    module = install(tmp_path / "site", "memo", plugin_source("memo"))
    file = tmp_path / "validator.toml"
    chain = "[chains.a]\n[[chains.a.handlers]]\nname = 'memo'\n"
    file.write_text(f"[plugins]\nlock = 'plugins.lock'\n{chain}")
    config = load_config(file)
    with pytest.raises(UserError, match=r"plugins\.lock: No such file or directory$"):
        configured_lock(config)
    with on_path(tmp_path / "site"):
        lock = lock_of(tmp_path / "plugins.lock", "memo")
        assert configured_lock(config) == lock
        definition = lane_definition(config, "a")
        assert definition.plan.lock == lock
        definition.check()
    path = tmp_path / "site" / f"{module}.py"
    path.write_text(path.read_text() + "\n")
    with on_path(tmp_path / "site"):
        with pytest.raises(UserError, match=r"^chain a: memo \(dist-memo 1\.0\.0, .*\): its files have the hash "):
            lane_definition(config, "a")
        with pytest.raises(UserError, match=r"memo \(dist-memo 1\.0\.0, .*\): its files have the hash "):
            definition.check()  # as a worker with other files does


def test_any_installed_plugin_may_run_without_lock(tmp_path: Path) -> None:
    install(tmp_path, "memo", plugin_source("memo"))
    with on_path(tmp_path):
        chain = Chain.model_validate({"handlers": [{"name": "memo"}]})
        assert chain_runtime(chain, "a").plan.lock is None
