# SPDX-License-Identifier: Apache-2.0
"""`validator plugins check` reports each defect at its point. Each check starts several processes, hence the separate file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.testing.made_distribution import make_distribution
from tests.unit.testing.test_check import ARCHIVE, CLEAN, JSON, LOADS, MODULE, NAME, RECORDS, SEEDS, SOURCE, failures
from validator.testing.check import check_distribution
from validator.testing.check_points import IMPORT_MS_MAX

if TYPE_CHECKING:
    from pathlib import Path

BUSY = (
    "import time\nend = time.process_time() + " + str((IMPORT_MS_MAX + 50) / 1000) + "\n"
    "while time.process_time() < end:\n    pass\n"
)
"""Takes a little more CPU time than an import may take."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "point", "detail"),
    [
        (("(2, 0)", "(9, 0)"), LOADS, "it was written for API 9.0"),
        (('name="remark"', 'name="other"'), LOADS, "its manifest's name is 'other'"),
        (("def validator_handlers()", "def validator_handlerz()"), LOADS, "did you mean validator_handlers"),
        (("@dataclass(frozen=True)", "@dataclass(frozen=True, eq=False)"), JSON, "which is read as"),
        (('prefix=b"\\x00\\x02"', 'prefix=b"\\x00\\x01"'), RECORDS, "have two owners"),
        (('kind="ask"', 'kind=min({"ask", "beg"}, key=hash)'), SEEDS, "it yields ["),
        (("PREFIX = ", "import time\nPREFIX = "), CLEAN, f"{MODULE}.py:11:1: clock: import time"),
        pytest.param(("PREFIX = ", BUSY + "PREFIX = "), SEEDS, "importing it takes", marks=pytest.mark.long),
        (("PREFIX = ", "open(__file__).read()\nPREFIX = "), ARCHIVE, "NotADirectoryError"),
        pytest.param(("PREFIX = ", "print('hello')\nPREFIX = "), CLEAN, "print()", marks=pytest.mark.long),
        (
            ("PREFIX = ", "__import__('os')._exit(7)\nPREFIX = "),
            "runs to completion",
            "exited with 7 at: remark: loads",
        ),
    ],
)
def test_defect_is_reported_at_its_point(folder: Path, change: tuple[str, str], point: str, detail: str) -> None:
    assert change[0] in SOURCE
    make_distribution(folder, MODULE, SOURCE.replace(*change))
    assert detail in failures(check_distribution(NAME))[point]
