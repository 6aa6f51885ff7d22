# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this plugin import their sibling modules; property tests use the project's profile."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from validator_relay_chain.seeding import Seed
from validator_simulators.relay_chain import MockNode, Speech
from validator_simulators.relay_chain import node as mock_node

from tests import hypothesis_profile

sys.path.insert(0, str(Path(__file__).resolve().parent))

hypothesis_profile.load()

from answers_world import prepared  # noqa: E402
from relay_world import Collected, World, chain, runtime_notice  # noqa: E402

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


@pytest.fixture
def node() -> Iterator[MockNode]:
    with MockNode(chain().recording) as node:
        yield node


@pytest.fixture
def spare() -> Iterator[MockNode]:
    with MockNode(chain().recording) as node:
        yield node


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Seed:
    """Return what an honest node gives to a lane that is prepared."""
    with MockNode(chain().recording) as node:
        return prepared(World([node.url], tmp_path_factory.mktemp("seed")), tmp_path_factory.mktemp("lane")).seed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Seed, Collected]:
    """Return what a lane begins with, and its records when nothing goes wrong."""
    with MockNode(chain().recording) as node:
        world = World([node.url], tmp_path_factory.mktemp("undisturbed"))
        seed, out = world.seed(), Collected()
        world.follow(out, seed)
    assert world.told == [runtime_notice()]
    return seed, out
