# SPDX-License-Identifier: Apache-2.0
"""A change of executed blocks is refused before the job runs, by the rules that it last started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.config import load_config
from validator.errors import UserError
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.lanes.kept_rules import keep_rules, refuse_changed_past

SEED = "[chains.a]\n"
AT_10 = SEED + "rules = [{from_block = 10, profile = 'router/2021-09'}]"
AT_10_AND_20 = SEED + "rules = [{from_block = 10, profile = 'router/2021-09'}, {from_block = 20, features = []}]"
AT_12 = SEED + "rules = [{from_block = 12, profile = 'router/2021-09'}]"


def definition(tmp_path: Path, text: str) -> dict[str, LaneDefinition]:
    file = tmp_path / "validator.toml"
    file.write_text(text)
    return {"a": lane_definition(load_config(file), "a")}


@pytest.mark.parametrize(
    ("before", "after", "executed", "changed"),
    [
        (AT_10, AT_10, 30, None),
        (SEED, AT_10, 9, None),
        (SEED, AT_10, 10, 10),
        (AT_10, SEED, 9, None),
        (AT_10, SEED, 10, 10),
        (AT_10, AT_10_AND_20, 19, None),
        (AT_10, AT_10_AND_20, 20, 20),
        (AT_10, AT_12, 9, None),
        (AT_10, AT_12, 10, 10),
        (AT_10, AT_12, None, None),
    ],
)
def test_rules_may_change_only_for_blocks_to_come(
    tmp_path: Path, before: str, after: str, executed: int | None, changed: int | None
) -> None:
    keep_rules(tmp_path / "lanes", definition(tmp_path, before))
    now = definition(tmp_path, after)
    if changed is None:
        refuse_changed_past(tmp_path / "lanes", now, lambda _: executed)
        return
    with pytest.raises(UserError) as refused:
        refuse_changed_past(tmp_path / "lanes", now, lambda _: executed)
    assert str(refused.value).startswith(
        f"lane a: its rules differ from block {changed} on, but block {executed} is already executed"
    )
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", [SEED, AT_12], ids=["removed", "moved"])
def test_a_later_first_block_does_not_hide_a_changed_past(tmp_path: Path, text: str) -> None:
    keep_rules(tmp_path / "lanes", definition(tmp_path, AT_10))
    now = definition(tmp_path, text.replace(SEED, SEED + "first_block = 40\n"))
    with pytest.raises(UserError, match="its rules differ from block 11 on, but block 11 is already executed"):
        refuse_changed_past(tmp_path / "lanes", now, lambda _: 11)
    refuse_changed_past(tmp_path / "lanes", now, lambda _: 9)


def test_lane_that_is_new_or_whose_file_is_damaged_is_left_to_the_store(tmp_path: Path) -> None:
    now = definition(tmp_path, AT_10)
    refuse_changed_past(tmp_path / "lanes", now, lambda _: 99)
    (tmp_path / "lanes").mkdir()
    (tmp_path / "lanes" / "a.rules").write_bytes(b"\x01damaged")
    refuse_changed_past(tmp_path / "lanes", now, lambda _: 99)
