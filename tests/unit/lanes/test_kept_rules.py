# SPDX-License-Identifier: Apache-2.0
"""A change of executed blocks is refused before the job runs, by the rules that it last started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.config import load_config
from validator.errors import UserError
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.lanes.kept_start import refuse_changed_past, rules_changed

SEED = "[chains.a]\n"
AT_10 = SEED + "rules = [{from_block = 10, profile = 'router/2021-09'}]"
AT_10_AND_20 = SEED + "rules = [{from_block = 10, profile = 'router/2021-09'}, {from_block = 20, features = []}]"
AT_12 = SEED + "rules = [{from_block = 12, profile = 'router/2021-09'}]"


def definition(tmp_path: Path, text: str) -> dict[str, LaneDefinition]:
    file = tmp_path / "validator.toml"
    file.write_text(text)
    return {"a": lane_definition(load_config(file), "a")}


def rules_of(definitions: dict[str, LaneDefinition]) -> dict[str, bytes]:
    return {lane: definition.encode_rules() for lane, definition in definitions.items()}


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
    kept = rules_of(definition(tmp_path, before))
    now = definition(tmp_path, after)
    if changed is None:
        refuse_changed_past(kept, now, lambda _: executed)
        return
    with pytest.raises(UserError) as refused:
        refuse_changed_past(kept, now, lambda _: executed)
    assert str(refused.value).startswith(
        f"lane a: its rules differ from block {changed} on, but block {executed} is already executed"
    )
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", [SEED, AT_12], ids=["removed", "moved"])
def test_a_later_first_block_does_not_hide_a_changed_past(tmp_path: Path, text: str) -> None:
    kept = rules_of(definition(tmp_path, AT_10))
    now = definition(tmp_path, text.replace(SEED, SEED + "first_block = 40\n"))
    with pytest.raises(UserError, match="its rules differ from block 11 on, but block 11 is already executed"):
        refuse_changed_past(kept, now, lambda _: 11)
    refuse_changed_past(kept, now, lambda _: 9)


def test_lane_that_is_new_or_whose_rules_are_damaged_is_left_to_the_store(tmp_path: Path) -> None:
    now = definition(tmp_path, AT_10)
    refuse_changed_past({}, now, lambda _: 99)
    refuse_changed_past({"a": b"\x01damaged"}, now, lambda _: 99)


def test_rules_that_this_program_does_not_have_are_refused_with_a_checkpoint(tmp_path: Path) -> None:
    """The journal was written under them. Without one, only the emitted blocks matter, and a rebuild compares these."""
    now = definition(tmp_path, SEED)
    written = now["a"].encode_rules()
    version = written.index(b"router") + len(b"router") + 1 + 4
    kept = {"a": written[:version] + b"\xff" * 4 + written[version + 4 :]}
    assert rules_changed(kept, now)
    refuse_changed_past(kept, now, lambda _: 99)
    refuse_changed_past(kept, now, lambda _: None, checkpoint=True)
    with pytest.raises(
        UserError, match=r"^lane a: its journal was written under rules of version 4294967295, this"
    ) as error:
        refuse_changed_past(kept, now, lambda _: 99, checkpoint=True)
    assert "\n" not in str(error.value)


def test_handlers_that_are_no_longer_installed_are_refused_with_a_checkpoint(tmp_path: Path) -> None:
    """Also if they have handled nothing yet: the store brings the lane up under all that its journal names."""
    text = "[chains.a]\nhandlers = [{name = 'remark', from_block = 50}]\n"
    before = definition(tmp_path, text)
    written = before["a"].encode_rules().replace(b"1.0.0", b"0.0.9")
    assert written != before["a"].encode_rules()
    kept = {"a": written}
    refuse_changed_past(kept, before, lambda _: 9)
    with pytest.raises(
        UserError, match=r"^lane a: its journal was written under plugins that are no longer installed: remark@0.0.9"
    ):
        refuse_changed_past(kept, before, lambda _: 9, checkpoint=True)
