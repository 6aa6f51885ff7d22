# SPDX-License-Identifier: Apache-2.0
"""`broker.json` of another version."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from validator.errors import UserError
from validator.kafka.broker import EmbeddedBroker


@pytest.mark.parametrize(
    "more", [{"version": 2}, {"version": 1, "rack": "a"}, {"version": 3, "pid": None, "rack": "a"}]
)
def test_record_of_a_newer_version_is_not_called_damaged(tmp_path: Path, more: dict[str, object]) -> None:
    record = {"pid": os.getpid(), "started": "1", "port": 1, "controller_port": 2, **more}
    (tmp_path / "broker.json").write_text(json.dumps(record))
    with pytest.raises(
        UserError, match=r"broker\.json: a newer version of validator has written it \(version \d[^)]*\): use that"
    ) as error:
        EmbeddedBroker(tmp_path).status()
    assert "damaged" not in str(error.value)


def test_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text("{")
    with pytest.raises(UserError, match=r"broker\.json is damaged .*: remove it"):
        EmbeddedBroker(tmp_path).status()
