# SPDX-License-Identifier: Apache-2.0
"""`validator plugins check` reports each defect at its point. Each check starts several processes, hence the separate file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.testing.made_distribution import make_distribution, make_distribution_of
from tests.unit.testing.test_check import ARCHIVE, CLEAN, JSON, LOADS, MODULE, RECORDS, SEEDS, SOURCE, failures
from validator.testing.check import Outcome, check_distribution
from validator.testing.check_points import IMPORT_MS_MAX

if TYPE_CHECKING:
    from pathlib import Path

BUSY = (
    "import time\nend = time.process_time() + " + str((IMPORT_MS_MAX + 50) / 1000) + "\n"
    "while time.process_time() < end:\n    pass\n"
)
"""Takes a little more CPU time than an import may take."""


EXITS = "__import__('os')._exit(7)\nPREFIX = "
DEFECTS: dict[str, tuple[tuple[str, str], str, str]] = {
    "api": (("(2, 0)", "(9, 0)"), LOADS, "it was written for API 9.0"),
    "named": (('name="remark"', 'name="other"'), LOADS, "its manifest's name is 'other'"),
    "hook": (("def validator_handlers()", "def validator_handlerz()"), LOADS, "did you mean validator_handlers"),
    "unequal": (("@dataclass(frozen=True)", "@dataclass(frozen=True, eq=False)"), JSON, "which is read as"),
    "two": (('prefix=b"\\x00\\x02"', 'prefix=b"\\x00\\x01"'), RECORDS, "have two owners"),
    "hashed": (('kind="ask"', 'kind=min({"ask", "beg"}, key=hash)'), SEEDS, "it yields ["),
    "clock": (("PREFIX = ", "import time\nPREFIX = "), CLEAN, "validator_clock.py:11:1: clock: import time"),
    "prints": (("PREFIX = ", "print('hello')\nPREFIX = "), CLEAN, "print()"),
    "busy": (("PREFIX = ", BUSY + "PREFIX = "), SEEDS, "importing it takes"),
    "opens": (("PREFIX = ", "open(__file__).read()\nPREFIX = "), ARCHIVE, "NotADirectoryError"),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """What has failed in a distribution with a plugin for each defect, by plugin and point."""
    folder = tmp_path_factory.mktemp("defects")
    plugins = {}
    for name, (change, _, _) in DEFECTS.items():
        assert change[0] in SOURCE
        source = SOURCE.replace(*change).replace('name="remark"', f'name="{name}"')
        plugins[name] = (f"validator_{name}", source)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        results = check_distribution(make_distribution_of(folder, MODULE, plugins))
    return {
        (result.plugin.partition("@")[0], result.point): result.detail
        for result in results
        if result.outcome is Outcome.FAILED
    }


@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_reported_at_its_point(name: str, found: dict[tuple[str, str], str]) -> None:
    _, point, detail = DEFECTS[name]
    assert detail in found[name, point]


def test_plugin_that_ends_the_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = make_distribution(tmp_path, MODULE, SOURCE.replace("PREFIX = ", EXITS))
    assert "exited with 7 at: remark: loads" in failures(check_distribution(name))["runs to completion"]
