# SPDX-License-Identifier: Apache-2.0
"""`validator plugins`: installed plugins are listed even if they are broken; locks, artefacts and projects are written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.distributions import HANDLERS, IMPORTS, MANIFEST, install, on_path, plugin_source
from validator.cli.common import load_job_config
from validator.cli.main import app
from validator.errors import UserError
from validator.plugin.lock import read_lock
from validator.testing import check

CONFIGURED = f"""\
{IMPORTS}
from dataclasses import dataclass

@dataclass(frozen=True)
class Config:
    pallet: int
    names: tuple[str, ...] = ("a",)

{MANIFEST.format(name="needy", version="1.0.0").replace("(2, 0))", "(2, 0), Config)")}
{HANDLERS.format(kind="needy", prefix="02")}
"""
TRANSPORT = """\
@hookimpl
def validator_transports(config):
    yield Transport("out", run=print, topics=("verdicts", "receipts"))
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of distributions: a working plugin, a broken one, one that needs a configuration, and a transport."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "site"
    install(folder, "memo", plugin_source("memo", prefix="01"))
    install(folder, "broken", "raise SystemExit('no luck')")
    install(folder, "needy", CONFIGURED)
    out = IMPORTS + MANIFEST.format(name="out", version="2.0.0") + TRANSPORT
    install(folder, "out", out, group="validator.transports", version="2.0.0")
    return folder


def run(site: Path, *arguments: str, terminal: bool = False) -> Result:
    environment = {"TTY_COMPATIBLE": "1", "TERM": "dumb", "COLUMNS": "80"} if terminal else {}
    with on_path(site):
        return CliRunner().invoke(app, ["plugins", *arguments], env=environment)


def rows(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return {row["name"]: row for row in map(json.loads, result.stdout.splitlines())}


def configure(text: str) -> None:
    Path("validator.toml").write_text(text)


# --- list, show ---


def test_list_shows_every_plugin_with_its_problems(site: Path) -> None:
    result = run(site, "list")
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: " ".join(line.split()) for line in result.output.splitlines()}
    assert lines["plugin"] == "plugin group provides distribution state"
    assert lines["memo@1.0.0"] == "memo@1.0.0 handlers memo dist-memo, 1.0.0 ok"
    assert lines["needy@1.0.0"] == "needy@1.0.0 handlers needs a configuration dist-needy, 1.0.0 ok"
    assert lines["out@2.0.0"] == "out@2.0.0 transports out dist-out, 2.0.0 ok"
    assert any(name.startswith("router@") for name in lines)
    assert lines["broken"].startswith("broken handlers dist-broken, 1.0.0 importing plugin_")
    assert "failed (SystemExit: no luck): fix or remove the plugin" in " ".join(result.output.split())


def test_list_fits_a_terminal_of_80_columns(site: Path) -> None:
    result = run(site, "list", terminal=True)
    assert max(map(len, result.output.splitlines())) <= 80
    for name in ("hrmp_accept_open_channel", "validator-hrmp-calls", "early-hrmp@"):
        assert name in result.output


def test_list_prints_json(site: Path) -> None:
    found = rows(run(site, "list", "--json"))
    assert {"memo", "broken", "needy", "out", "router"} <= set(found)
    memo, broken = found["memo"], found["broken"]
    assert (memo["version"], memo["api"], memo["provides"], memo["problems"]) == ("1.0.0", "2.0", ["memo"], [])
    assert (memo["group"], memo["distribution"]) == ("validator.handlers", "dist-memo")
    assert (broken["version"], broken["api"], broken["provides"]) == (None, None, [])
    assert len(broken["problems"]) == 1
    assert found["router"]["provides"] == ["router"]


def test_transport_that_is_part_of_the_product_is_listed_and_shown(site: Path) -> None:
    rows = [json.loads(line) for line in run(site, "list", "--json").stdout.splitlines()]
    (row,) = (row for row in rows if row["name"] == "dry-run")
    assert (row["group"], row["provides"], row["problems"]) == ("validator.transports", ["dry-run"], [])
    assert [each["group"] for each in rows] == sorted(each["group"] for each in rows)
    shown = run(site, "show", "dry-run")
    assert shown.exit_code == 0
    assert "configuration  per_second: int, default 200" in shown.stdout


def test_list_reports_both_duplicates(site: Path) -> None:
    install(site, "memo", plugin_source("memo"), distribution="another")
    twins = [row for row in map(json.loads, run(site, "list", "--json").stdout.splitlines()) if row["name"] == "memo"]
    # in the order of their modules' names, which are numbered through the whole run
    assert sorted(row["distribution"] for row in twins) == ["another", "dist-memo"]
    assert ["has the same name and version" in row["problems"][0] for row in twins] == [True, True]


def test_list_continues_after_a_missing_artefact(site: Path) -> None:
    configure("[plugins]\nartefacts = ['dist_x-1.0.0-00000000.zip']\n")
    result = run(site, "list", "--json")
    assert result.exit_code == 0
    assert "dist_x-1.0.0-00000000.zip: the archive cannot be read: No such file or directory" in result.stderr
    assert '"memo"' in result.stdout


@pytest.mark.parametrize("command", [["list"], ["show", "memo"], ["lock"]])
def test_two_artefacts_of_one_distribution_are_refused_as_by_the_job(site: Path, command: list[str]) -> None:
    configure("[plugins]\nartefacts = ['memo-1.0.0-00000000.zip', 'memo-2.0.0-11111111.zip']\n[chains.a]\n")
    result = run(site, *command)
    with pytest.raises(UserError) as caught:
        load_job_config(None)
    assert (result.exit_code, result.stderr) == (2, f"validator: {caught.value}\n")
    assert "memo-1.0.0-00000000.zip and memo-2.0.0-11111111.zip hold one distribution" in str(caught.value)


def test_show_prints_every_field(site: Path) -> None:
    configure(
        "[chains.a]\n"
        "[[chains.a.handlers]]\nname = 'needy'\nfrom_block = 7\nconfig = {pallet = 3}\n"
        "[[chains.a.handlers]]\nname = 'needy'\nfrom_block = 9\nremoved = true\n"
        "[[chains.a.handlers]]\nname = 'needy'\nfrom_block = 11\nversion = '2.0.0'\n"
    )
    result = run(site, "show", "needy")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "needy@1.0.0  (validator.handlers, API 2.0)"
    (row,) = rows(run(site, "show", "needy@1.0.0", "--json")).values()
    assert lines[1:] == [
        "  distribution   dist-needy 1.0.0",
        f"  entry point    needy = {row['value']}",
        f"  file           {site / row['value']}.py",
        f"  sha256         {row['sha256']}",
        "  provides       kind needy, prefix 02, weight 1, per_byte 0, payload_bytes_max 65536",
        "  configuration  pallet: int, required",
        "  configuration  names: tuple[str, ...], default ('a',)",
        '  used by        chains.a from block 7 to block 8, {"pallet":3}',
    ]
    assert row["used_by"] == [
        {"table": "chains.a", "from_block": 7, "before_block": 9, "version": None, "config": {"pallet": 3}}
    ]
    assert len(row["sha256"]) == 64


def test_show_of_broken_plugin_protocol_and_transport(site: Path) -> None:
    configure("[chains.a]\n[transports.out]\npassword = 'secret'\n")
    broken = run(site, "show", "broken")
    assert broken.exit_code == 1
    assert run(site, "show", "broken", "--json").exit_code == 1
    assert "  problem        importing plugin_" in broken.stdout
    shown = run(site, "show", "router", "--json")
    assert shown.exit_code == 0
    (router,) = rows(shown).values()
    assert [use["table"] for use in router["used_by"]] == ["chains.a"]
    out = run(site, "show", "out")
    assert "  used by        transports.out\n" in out.stdout
    assert "  problem        it has no configuration, found config.password: remove it\n" in out.stdout
    assert "secret" not in out.stdout
    configure("")
    assert "provides       transport out, topics verdicts receipts\n" in run(site, "show", "out").stdout


def test_show_of_unknown_plugin_is_one_error_line(site: Path) -> None:
    result = run(site, "show", "absent")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("validator: plugin 'absent' is not installed; ")
    assert run(site, "show", "memo@9").exit_code == 2


# --- check ---


@pytest.mark.parametrize(("outcome", "code"), [(check.Outcome.FAILED, 1), (check.Outcome.SKIPPED, 0)])
def test_check_prints_a_table_and_exits_with_its_code(
    site: Path, monkeypatch: pytest.MonkeyPatch, outcome: check.Outcome, code: int
) -> None:
    results = [
        check.Result("memo@1.0.0", "weight", check.Outcome.OK),
        check.Result("memo@1.0.0", "lint", outcome, "memo.py:3: a clock"),
    ]
    asked: list[str] = []

    def check_distribution(name: str, progress: Any = None) -> list[check.Result]:
        asked.append(name)
        progress("memo: lint")
        return results

    monkeypatch.setattr(check, "check_distribution", check_distribution)
    result = run(site, "check", "dist-memo")
    assert result.exit_code == code
    assert asked == ["dist-memo"]
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "plugin outcome point, with its detail",
        "memo@1.0.0 ok weight",
        f"memo@1.0.0 {outcome.value} lint, memo.py:3: a clock",
    ]
    assert result.stderr == "memo: lint\n"
    as_json = run(site, "check", "dist-memo", "--json")
    assert as_json.exit_code == code
    assert [json.loads(line)["outcome"] for line in as_json.stdout.splitlines()] == ["ok", outcome.value]


def test_each_finding_of_a_check_has_a_line_in_a_pipe(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = check.Result("memo@1.0.0", "lint", check.Outcome.FAILED, "memo.py:3: a clock\nmemo.py:9: a random number")
    monkeypatch.setattr(check, "check_distribution", lambda *_: [found])
    _, *rows = run(site, "check", "dist-memo").stdout.splitlines()
    assert [" ".join(row.split()) for row in rows] == [
        "memo@1.0.0 failed lint, memo.py:3: a clock",
        "memo@1.0.0 failed lint, memo.py:9: a random number",
    ]


def test_check_of_unknown_plugin_is_one_error_line(site: Path) -> None:
    result = run(site, "check", "absent")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_check_of_plugin_name_says_its_distribution(site: Path) -> None:
    result = run(site, "check", "memo")
    assert result.exit_code == 2
    assert result.stderr.endswith("found none of this name; the plugin 'memo' is in dist-memo\n")


# --- lock ---


def test_lock_has_the_plugins_of_the_configuration(site: Path) -> None:
    configure(
        "[plugins]\nlock = 'locks/mine'\n[chains.a]\nhandlers = [{name = 'memo'}]\n[transports.out]\n"
        "[chains.b]\nhandlers = [{name = 'memo', version = '1.0.0'}]\n"
    )
    Path("locks").mkdir()
    result = run(site, "lock")
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines()][:1] == ["memo@1.0.0"]
    assert result.stderr == "locks/mine lists 3 plugins\n"
    assert [entry.name for entry in read_lock(Path("locks/mine"))] == ["memo", "router", "out"]
    before = Path("locks/mine").read_bytes()
    as_json = run(site, "lock", "--json")
    assert [json.loads(line)["name"] for line in as_json.stdout.splitlines()] == ["memo", "router", "out"]
    assert Path("locks/mine").read_bytes() == before


def test_list_says_which_used_plugins_the_lock_refuses(site: Path) -> None:
    configure("[plugins]\nlock = 'mine'\n[chains.a]\nhandlers = [{name = 'memo'}]\n")
    assert run(site, "list").stderr == "validator: mine: No such file or directory\n"
    assert run(site, "lock").exit_code == 0
    assert rows(run(site, "list", "--json"))["memo"]["problems"] == []
    locked = json.loads(Path("mine").read_text())
    locked["plugins"] = [{**each, "version": "2.0.0"} for each in locked["plugins"] if each["name"] == "memo"]
    Path("mine").write_text(json.dumps(locked))
    found = rows(run(site, "list", "--json"))
    assert found["memo"]["problems"][0].startswith("the lock has version 2.0.0: ")
    assert found["router"]["problems"][0].startswith("the lock does not name it: ")
    assert found["out"]["problems"] == []
    configure("[plugins]\nlock = 'mine'\n")
    assert rows(run(site, "list", "--json"))["router"]["problems"] == []


def test_lock_of_all_refuses_a_broken_plugin(site: Path) -> None:
    result = run(site, "lock", "--all")
    assert result.exit_code == 2
    assert result.stderr.startswith("validator: broken (dist-broken 1.0.0, ")
    assert not Path("plugins.lock").exists()
    for path in site.glob("*"):
        if "broken" in path.name:
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
    result = run(site, "lock", "--all")
    assert result.exit_code == 0, result.output
    assert result.stderr.endswith("; set [plugins] lock to enforce it\n")
    assert {"memo", "needy", "out", "router"} <= {entry.name for entry in read_lock(Path("plugins.lock"))}


def test_lock_reports_missing_plugins(site: Path) -> None:
    assert run(site, "lock").stderr == (
        "validator: no chain is configured: expected a table [chains.<lane>] that uses plugins, or --all\n"
    )
    configure("[chains.a]\nprotocol = 'absent'\nhandlers = [{name = 'gone'}]\n")
    result = run(site, "lock")
    assert result.exit_code == 2
    assert result.stderr == (
        "validator: the configuration uses plugins that are not installed: gone (group validator.handlers), "
        "absent (group validator.protocols)\n"
    )


# --- pack, new ---


def test_pack_prints_path_and_further_requirements(site: Path) -> None:
    install(site, "reader", plugin_source("reader", prefix="05"), requires=("dist-memo",))
    result = run(site, "pack", "dist-reader", "--output", "out")
    assert result.exit_code == 0, result.output
    (artefact,) = Path("out").iterdir()
    assert result.stdout == f"{artefact}\n"
    assert (
        result.stderr == "it also needs dist-memo: run `validator plugins pack dist-memo` if workers do not have it\n"
    )
    as_json = run(site, "pack", "dist-reader", "--output", "out", "--json")
    assert json.loads(as_json.stdout) == {"path": str(artefact), "needs": ["dist-memo"]}
    assert run(site, "pack", "absent").exit_code == 2


def test_new_prints_the_files_it_wrote(site: Path) -> None:
    result = run(site, "new", "my-kind", "--kind", "handler", "--output", "projects")
    assert result.exit_code == 0, result.output
    assert "projects/validator-my-kind/src/validator_my_kind/__init__.py\n" in result.stdout
    assert all(Path(line).is_file() for line in result.stdout.splitlines())
    assert "pip install -e projects/validator-my-kind, then" in result.stderr
    again = run(site, "new", "my-kind", "--kind", "handler", "--output", "projects")
    assert again.exit_code == 2
    assert again.stderr == "validator: projects/validator-my-kind: expected a folder that does not exist yet\n"


def test_help_loads_no_plugins_and_nothing_heavy() -> None:
    program = (
        "from typer.testing import CliRunner; from validator.cli.main import app; import sys; "
        "assert CliRunner().invoke(app, ['plugins', '--help']).exit_code == 0; print('\\n'.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "validator.cli.plugins" in loaded
    assert not loaded & {"confluent_kafka", "pyspark", "hypothesis", "validator.testing.check"}
