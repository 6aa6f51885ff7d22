# SPDX-License-Identifier: Apache-2.0
"""Whole chains under metadata with other descriptors, and what it shows of a runtime's age."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from edited_metadata import V2, V3, Edit, backing_votes, descriptor, edited
from relay_world import SPEC, Collected, World, busy_chain, load
from validator_relay_chain.errors import UndecodableBlock
from validator_relay_chain.rules import UNSEEN, features_of, guess_of
from validator_simulators.relay_chain import MockNode

V1 = ("b32", "b32", "b32", "b32", "b64", "b32", "b32")
WITHOUT_SIGNALS = ["relaxed_watermark", "force_open_channel", "dmp_by_relay_parent"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    with MockNode(busy_chain().recording) as node:
        world, out = World([node.url], tmp_path_factory.mktemp("undisturbed")), Collected()
        world.follow(out, world.seed())
    return out


@pytest.mark.parametrize("shapes", [V1, V2, V3])
def test_chain_is_followed_whatever_its_descriptors_and_their_fields_are_called(
    shapes: Sequence[str], undisturbed: Collected, tmp_path: Path
) -> None:
    recording = busy_chain().recording
    other = edited(descriptor(shapes))
    for version in (SPEC, SPEC + 1):
        recording.put_metadata(str(version), other)
    with MockNode(recording) as node:
        world, out = World([node.url], tmp_path), Collected()
        world.follow(out, world.seed())
    assert out.records == undisturbed.records
    runtime = load("polkadot", SPEC, other)
    assert (runtime.has_signals, runtime.has_scheduling_parents) == (shapes != V1, shapes == V3)


@pytest.mark.parametrize("shapes", [(*V2[:-1], "b31"), V2[:-1], (*V3, "u8")])
def test_descriptor_of_another_length_is_refused(shapes: Sequence[str]) -> None:
    with pytest.raises(UndecodableBlock, match=r"ParaInherent\.enter: backed candidates: expected the shape"):
        load("polkadot", SPEC, edited(descriptor(shapes)))


@pytest.mark.parametrize(
    ("edits", "shows", "expected"),
    [
        ((), "one limit of channels for all paras", WITHOUT_SIGNALS[:1]),
        ((backing_votes,), "minimum_backing_votes", WITHOUT_SIGNALS),
        ((descriptor(V2),), "signals", [*WITHOUT_SIGNALS, "downward_needs_head"]),
        ((descriptor(V3),), "scheduling parents", list(UNSEEN)),
    ],
)
@pytest.mark.parametrize("version", [1, 2_000_000])
def test_chain_with_its_own_versions_is_as_old_as_what_its_metadata_shows(
    edits: Sequence[Edit], shows: str, expected: list[str], version: int
) -> None:
    runtime = load("our-relay", version, edited(*edits))
    assert sorted(UNSEEN.keys() & features_of(runtime)) == sorted(expected)
    assert f"metadata shows {shows}, " in (guess_of(runtime) or "")
