# SPDX-License-Identifier: Apache-2.0
"""A command about one lane needs no `--lane` if the configuration has a single chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.follower import invoke
from validator.cli.common import lane_of
from validator.config import Config
from validator.errors import UserError

COMMANDS = {
    "dry-run": ("-",),
    "what-if": ("--sweep=hrmp_max_message_num_per_candidate=1",),
    "audit": (),
    "export": ("--out=there",),
    "state show": (),
    "lanes import": ("STATE.json",),
    "lanes resume": ("--wait=0",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_lane_of_several_must_be_named(command: str, tmp_path: Path) -> None:
    path = tmp_path / "validator.toml"
    path.write_text('kafka = { "bootstrap.servers" = "localhost:1" }\n[chains.a]\n[chains.b]\n', encoding="utf-8")
    config = f"--{'own' if command == 'what-if' else 'config'}={path}"
    result = invoke(*command.split(), *COMMANDS[command], config, stdin=b'{"para_id": 1}')
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--lane: expected one of the configured chains (a, b), found none" in result.stderr


def test_single_lane_need_not_be_named() -> None:
    one, none = Config.model_validate({"chains": {"a": {}}}), Config.model_validate({})
    assert (lane_of(one, None), lane_of(one, "b")) == ("a", "b")
    with pytest.raises(UserError, match=r"--lane: expected one of the configured chains \(none\), found none"):
        lane_of(none, None)
