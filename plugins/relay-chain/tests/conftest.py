# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this plugin import their sibling modules; property tests use the project's profile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from validator_simulators.relay_chain import Speech
from validator_simulators.relay_chain import node as mock_node

from tests import hypothesis_profile

sys.path.insert(0, str(Path(__file__).resolve().parent))

hypothesis_profile.load()

SPEECHES = {
    "old": (Speech.OLD,),
    "archive": (Speech.ARCHIVE,),
    "archive-and-head": (Speech.ARCHIVE, Speech.HEAD),
    "head": (Speech.HEAD,),
}
"""What nodes speak."""


@pytest.fixture(params=SPEECHES)
def speech(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the mock nodes of a test speak one kind of JSON-RPC after the other."""
    monkeypatch.setattr(mock_node, "SPEAKS", SPEECHES[request.param])
    return str(request.param)
