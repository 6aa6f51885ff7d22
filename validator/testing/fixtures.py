# SPDX-License-Identifier: Apache-2.0
"""Fixtures that pytest offers wherever validator is installed. pytest imports this module at each start, so it imports little itself.

Source: pytest, entry points of group ``pytest11``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from validator.replay.scenario import Scenario
    from validator.testing.harness import Harness


@pytest.fixture
def harness() -> type[Harness]:
    """Return the class of in-memory chains whose upward messages go to a plugin: ``harness(plugin, {"bytes_max": 64})`` (`Harness`)."""
    from validator.testing.harness import Harness

    return Harness


@pytest.fixture(scope="session")
def vectors() -> Callable[[str], list[Scenario]]:
    """Return a function that reads a protocol's conformance scenarios: ``vectors("my-protocol")`` (`validator.replay.scenario`)."""
    from functools import cache

    from validator.config import DEFAULT_PROTOCOL
    from validator.document import read_document
    from validator.plugin.runtime import installed_protocol
    from validator.replay.scenario import read_scenarios, suite_files

    def read(suite: str = DEFAULT_PROTOCOL) -> list[Scenario]:
        installed = cache(installed_protocol)
        documents = [read_document(path) for path in suite_files(suite)]
        return [
            scenario
            for document in documents
            if not (isinstance(document.value, dict) and document.has("format"))
            for scenario in read_scenarios(document, installed=installed)
        ]

    return read
