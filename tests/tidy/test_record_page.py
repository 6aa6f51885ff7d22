# SPDX-License-Identifier: Apache-2.0
"""The page of records and the client library's types are as the schemas say, and the sample of a session change is a record."""

from __future__ import annotations

import json
import re

from tests.codecs import decoded, encoded
from tests.tidy.record_page import DRY_RUNS, INPUTS, MODULE, OUTPUTS, PAGE, render, render_module, schema_names
from tests.tidy.tree import ROOT
from validator.core.inputs import Input, Source


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run python -m tests.tidy.record_page"


def test_types_of_the_client_library_are_up_to_date() -> None:
    assert MODULE.read_text(encoding="utf-8") == render_module(), "run python -m tests.tidy.record_page"


def test_page_has_every_schema_and_every_field_with_its_meaning() -> None:
    assert sorted((*INPUTS, *OUTPUTS, *DRY_RUNS)) == schema_names()
    rows = re.findall(r"^\| `\w+` \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 150
    assert [row for row in rows if row.endswith("|  |")] == []


def test_sample_of_a_session_change_has_every_member_and_is_a_record() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    (sample,) = (json.loads(each) for each in re.findall(r"```json\n(.*)\n```", text) if "session_change" in each)
    item = decoded("blocks", encoded("blocks", sample), Source("blocks", 0, 0))
    assert isinstance(item, tuple)
    assert isinstance(item[1], Input)
    schema = json.loads((ROOT / "avro" / "validator.Block.avsc").read_text(encoding="utf-8"))
    change = next(field["type"][1] for field in schema["fields"] if field["name"] == "session_change")
    assert [field["name"] for field in change["fields"]] == [*sample["session_change"], "limits"]
    assert all(f"| `{field['name']}` |" in text for field in change["fields"])
