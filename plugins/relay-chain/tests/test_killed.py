# SPDX-License-Identifier: Apache-2.0
"""A follower that is killed at each of its steps continues without a lost or doubled record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from relay_world import SESSION, Collected, World, busy_chain
from validator_relay_chain.seeding import Seed
from validator_simulators.relay_chain import MockNode


@pytest.fixture(scope="module")
def node() -> Iterator[MockNode]:
    with MockNode(busy_chain(KILLED_TO).recording) as node:
        yield node


@pytest.fixture(scope="module")
def undisturbed(node: MockNode, tmp_path_factory: pytest.TempPathFactory) -> tuple[Seed, Collected]:
    world = World([node.url], tmp_path_factory.mktemp("undisturbed"), to_block=KILLED_TO)
    seed, out = world.seed(), Collected()
    world.follow(out, seed)
    return seed, out


KILLED_TO = SESSION + 2


class Killed(BaseException):
    """The process ends here."""


STEPS = (
    "source:Chain.block",
    "source:Chain.header",
    "block_reads:read_heads_and_lists",
    "block_reads:BlockReads.queue",
    "block_reads:BlockReads.lifecycles",
    "follow:decode_block",
    "follow:convert",
    "follow:Follower._commit",
)


@pytest.mark.parametrize("step", [*STEPS, "before the commit", "after the commit"])
def test_killed_at_any_step_it_continues_without_a_lost_or_doubled_record(
    step: str, node: MockNode, undisturbed: tuple[Seed, Collected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, expected = undisturbed
    out, killed = Collected(), list[str]()
    for after in (0, 3):
        with monkeypatch.context() as patch:
            strikes = _arm(step, out, patch, after=after)
            with suppress(Killed):
                World([node.url], tmp_path, to_block=KILLED_TO).follow(out, seed)
            killed += strikes
        out.before = lambda _: None
    World([node.url], tmp_path, to_block=KILLED_TO).follow(out, seed)
    assert killed
    assert out.records == expected.records
    assert out.cursor == expected.cursor


def _arm(step: str, out: Collected, patch: pytest.MonkeyPatch, *, after: int) -> list[str]:
    """Make a step kill the process after some calls."""
    left = [after]
    killed: list[str] = []

    def strike() -> None:
        left[0] -= 1
        if left[0] < 0:
            killed.append(step)
            raise Killed

    if step == "before the commit":
        out.before = lambda _: strike()
    elif step == "after the commit":
        commit = Collected.commit

        def committed(self: Collected, *given: Any) -> None:
            commit(self, *given)
            strike()

        patch.setattr(Collected, "commit", committed)
    else:
        module, _, name = step.partition(":")
        owner: Any = __import__(f"validator_relay_chain.{module}", fromlist=["_"])
        for part in name.split(".")[:-1]:
            owner = getattr(owner, part)
        name = name.rpartition(".")[2]
        function: Callable[..., Any] = getattr(owner, name)

        def struck(*given: Any, **named: Any) -> Any:
            strike()
            return function(*given, **named)

        patch.setattr(owner, name, struck)
        if step == "block_reads:read_heads_and_lists":
            patch.setattr("validator_relay_chain.fetch.read_heads_and_lists", struck)
    return killed
