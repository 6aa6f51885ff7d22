# SPDX-License-Identifier: Apache-2.0
"""Every command with ``--json`` prints objects, one a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cli.follower import Follower, follower, invoke
from validator.cli.main import COMMANDS, _load

if TYPE_CHECKING:
    from pathlib import Path

RUN: Final[dict[str, tuple[str, ...]]] = {
    "broker status": (),
    "compare": ("verdicts", "{expected}", "{config}"),
    "dead-letters list": ("{config}",),
    "dead-letters replay": ("--all", "{config}"),
    "explain": ("I-06",),
    "lanes": ("{config}",),
    "lanes import": ("{state}", "--lane=polkadot", "{config}"),
    "plugins check": ("dist-absent",),
    "plugins list": (),
    "plugins lock": ("--all",),
    "plugins show": ("router",),
    "replay": ("{trace}",),
    "rules diff": ("router/seed", "router/2025-07"),
    "rules list": (),
    "rules show": ("router/2025-07",),
    "schemas check": (),
    "schemas list": (),
    "simulate": ("--blocks=2",),
    "simulate network": ("--blocks=2", "--paras=10"),
    "submit": ("blocks", "{blocks}", "{config}"),
    "topics create": ("{config}",),
    "topics list": ("{config}",),
    "watch": ("receipts", "{config}"),
}
"""Commands that this test runs, with their arguments."""

ELSEWHERE: Final = {
    "lanes resume": "tests/cli/test_parked.py",
    "message": "tests/cli/test_messages.py",
    "messages-of": "tests/cli/test_messages.py",
    "audit": "tests/cli/test_audit.py",
    "broker start": "tests/unit/kafka/test_process.py starts brokers; it prints what `broker status` prints",
    "broker settings": "tests/cli/test_broker_settings.py",
    "broker stop": "as `broker start`",
    "dead-letters show": "tests/cli/test_dead_letters.py reads its output as lines of JSON",
    "demo": "tests/cli/test_demo.py",
    "export": "tests/cli/test_what_if.py",
    "dry-run": "tests/cli/test_dry_run.py",
    "plugins pack": "tests/cli/test_plugins.py",
    "run": "tests/cli/test_run_up.py",
    "schemas register": "tests/cli/test_schemas.py",
    "state show": "tests/cli/test_state.py",
    "state verify": "tests/cli/test_state.py",
    "up": "tests/cli/test_run_up.py",
    "what-if": "tests/cli/test_what_if.py",
}
"""Commands with ``--json`` whose output other tests read as lines of JSON."""


def with_json() -> list[str]:
    """Return every command that has the option."""
    found = []

    def look(name: str, command: Any) -> None:
        if any("--json" in parameter.opts for parameter in command.params):
            found.append(name)
        for each in getattr(command, "commands", {}).values():
            look(f"{name} {each.name}", each)

    for name in (*COMMANDS, "demo", "simulate"):  # of plugins/simulators
        look(name, _load(name))
    return found


def test_every_command_with_the_option_is_tested() -> None:
    assert sorted({**RUN, **ELSEWHERE}) == sorted(with_json())
    assert not set(RUN) & set(ELSEWHERE)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object]) -> Follower:
    followed = follower(tmp_path_factory.mktemp("json"), kafka, "json-option.", blocks=3)
    followed.judge(followed.records)
    return followed


@pytest.mark.parametrize("command", sorted(RUN))
def test_output_is_one_object_a_line(
    command: str, chain: Follower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VALIDATOR_HOME", str(tmp_path / "home"))
    files = {
        "expected": "".join(json.dumps(each) + "\n" for each in chain.expected),
        "blocks": json.dumps(next(record for kind, record in chain.records if kind == "blocks")) + "\n",
        "state": json.dumps({"valid_paras": [2000]}),
        "trace": json.dumps({"id": "T", "steps": [{"block": 1}]}),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    words = {name: str(tmp_path / name) for name in files} | {"config": chain.option()}
    result = invoke(*command.split(), "--json", *(each.format(**words) for each in RUN[command]))
    if command == "broker status":
        assert result.exit_code == 1
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each for each in shown if not isinstance(each, dict)] == []
    assert shown or command in {"dead-letters list", "dead-letters replay", "plugins check"}, result.output
