# SPDX-License-Identifier: Apache-2.0
"""Rates and shares of addresses, and the sockets of a listener."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from validator_channel.limits import ConnectionLimits, ListenerLimits
from validator_channel.net.listener import HalfOpen
from validator_channel.net.sockets import TokenBuckets, address_key, listen


async def turn() -> None:
    """Let the loop run what is scheduled, and what that schedules."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_token_bucket_allows_a_burst_and_then_a_rate() -> None:
    buckets = TokenBuckets(per_second=2.0, burst=3, keys_max=2)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert buckets.take("b", 0.0)
    assert [buckets.take("a", 0.5), buckets.take("a", 0.6)] == [True, False]
    assert [buckets.take("a", 100.0) for _ in range(4)] == [True, True, True, False]
    assert buckets.take("c", 100.0)
    assert len(buckets) == 2
    assert buckets.take("a", 100.0) is False  # b was forgotten, not a


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1%eth0", "2001:db8:1:2::/64"),
        ("a path", "a path"),
    ],
)
def test_address_key(host: str, key: str) -> None:
    assert address_key(host) == key


async def test_half_open_places_are_shared() -> None:
    half_open = HalfOpen(total=4, share=3)
    tasks: dict[str, list[asyncio.Task[None]]] = {"a": [], "b": [], "c": []}

    async def wait() -> None:
        await asyncio.Event().wait()

    async def ask(address: str) -> str | None:
        why = half_open.make_room(address)
        if why is None:
            tasks[address].append(asyncio.create_task(wait()))
            half_open.add(address, tasks[address][-1])
        await turn()
        return why

    assert [await ask("a") for _ in range(4)] == [None, None, None, "share"]
    assert [await ask("b") for _ in range(3)] == [None, None, "full"]
    assert [task.cancelled() for task in tasks["a"]] == [True, False, False]
    assert await ask("c") is None
    assert len(half_open) == 4
    assert sum(task.cancelled() for task in [*tasks["a"], *tasks["b"]]) == 2
    for task in half_open.tasks():
        task.cancel()
    await turn()
    assert len(half_open) == 0


async def test_listening_sockets_of_a_host_have_one_port() -> None:
    sockets = await listen("localhost", 0, 5)
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
    finally:
        for each in sockets:
            each.close()


@pytest.mark.parametrize("limits", [ConnectionLimits, ListenerLimits])
def test_limits_are_positive(limits: type[Any]) -> None:
    name = "write_timeout" if limits is ConnectionLimits else "half_open_max"
    with pytest.raises(ValueError, match=f"{name}: expected a number above 0, found 0"):
        limits(**{name: 0})
