# SPDX-License-Identifier: Apache-2.0
"""A protocol's simulation is found by its entry point; one that is missing or cannot be imported is one line."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from validator_simulators import SimulationSettings, installed

from validator.errors import UserError


def entries(monkeypatch: pytest.MonkeyPatch, *simulators: str) -> None:
    def found(*, group: str, name: str | None = None) -> list[EntryPoint]:
        if group == "validator.protocols":
            return [EntryPoint("mine@2", "mine.plugin", group), EntryPoint("other", "other.plugin", group)]
        return [EntryPoint("mine", value, group) for value in simulators if name == "mine"]

    monkeypatch.setattr(installed, "entry_points", found)


@pytest.mark.parametrize(
    ("protocol", "simulators", "expected"),
    [
        ("absent", (), r"'absent' is not installed; installed are mine, other$"),
        ("other", (), r"'other' has no simulation"),
        ("mine", ("a:b", "c:d"), r"'mine' has several simulations"),
        (
            "mine",
            ("no_such_module:simulation",),
            r"importing no_such_module:simulation failed: ModuleNotFoundError: .+$",
        ),
    ],
)
def test_missing_simulation_is_one_line(
    protocol: str, simulators: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries(monkeypatch, *simulators)
    with pytest.raises(UserError, match=f"^--protocol: {expected}"):
        installed.simulation_of(protocol, SimulationSettings())


def test_simulation_of_any_distribution_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "my_simulator.py").write_text("def simulation(settings):\n    return settings.seed\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    entries(monkeypatch, "my_simulator:simulation")
    assert installed.simulation_of("mine", SimulationSettings(seed=7)) == 7
