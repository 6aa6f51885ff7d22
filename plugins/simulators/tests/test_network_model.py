# SPDX-License-Identifier: Apache-2.0
"""The simulated network: its settings, traffic, links, counts and laws."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import asdict, replace
from math import inf
from random import Random

import pytest
from validator_simulators.network import SIZES, NetworkSettings, simulate, to_json
from validator_simulators.network.metrics import Distribution, distribution, jain
from validator_simulators.network.report import costs, flooding_copies, kafka_copies
from validator_simulators.network.settings import BLOCK_BYTES_MAX, BLOCK_MS, SAMPLES_MAX
from validator_simulators.network.world import Calendar, Links, World, channels_of, size_draws

from validator.errors import UserError

SMALL = NetworkSettings(paras=12, blocks=150, fan_out=4)
ONE = NetworkSettings(
    paras=31, blocks=400, traffic="one", messages_per_block=1, ingest_bytes=3_000_000, sizes="uniform"
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"policy": "fast"},
            "policy: expected one of free, prefix, round-robin, rotating, arrival, favour, found 'fast'",
        ),
        ({"load": None}, "load: expected either load or size_bytes_mean, found neither"),
        ({"size_bytes_mean": 1}, "load: expected either load or size_bytes_mean, found both"),
        ({"paras": 10_001}, "paras: expected 2 to 10,000, found 10001"),
        ({"late_share": 1.5}, "late_share: expected 0 to 1, found 1.5"),
        ({"paras": 8}, "fan_out: expected at most 7 with 8 paras and spread traffic, found 8"),
        ({"paras": 31, "traffic": "skewed"}, "fan_out: expected at most 7 with 31 paras and skewed traffic, found 8"),
        (
            {"messages_per_block": 9},
            "messages_per_block: expected at most one message for each of the 8 channels, found 9",
        ),
        ({"load": 5.0}, "load: expected messages of 1 to 1,000,000 bytes, found a mean of 1,250,000: change load"),
        (
            {"lost_share": 0.1, "request_after_blocks": 0},
            "request_after_blocks: expected 1 or more, because bodies are lost, found 0",
        ),
        ({"mesh_nodes": 6}, "mesh_degree: expected less than the 6 nodes, found 6"),
        (
            {"paras": 10_000, "blocks": 1_000_000},
            "blocks: expected up to 500,000,000 messages in all, found 20,000,000,000",
        ),
        (
            {"paras": 10_000, "capacity_messages": 65_536},
            "capacity_messages: expected up to 5,000,000 unread messages in all",
        ),
    ],
)
def test_setting_out_of_range_is_named(values: dict[str, object], expected: str) -> None:
    with pytest.raises(UserError, match=re.escape(expected)):
        replace(NetworkSettings(), **values)


# --- traffic ---


def test_spread_traffic_gives_every_para_the_same_fan_in() -> None:
    channels = channels_of(SMALL, Random(7))
    assert channels == sorted(set(channels))
    assert set(Counter(sender for sender, _ in channels).values()) == {4}
    assert set(Counter(recipient for _, recipient in channels).values()) == {4}
    assert all(sender != recipient for sender, recipient in channels)


def test_skewed_traffic_prefers_the_first_paras() -> None:
    channels = channels_of(NetworkSettings(paras=100, traffic="skewed"), Random(7))
    assert channels == sorted(set(channels))
    assert set(Counter(sender for sender, _ in channels).values()) == {8}
    fan_in = Counter(recipient for _, recipient in channels)
    assert fan_in[0] > 4 * fan_in[50]


@pytest.mark.parametrize("per_block", [0.5, 2.0, 4.0])
def test_channels_send_as_often_as_configured(per_block: float) -> None:
    calendar = Calendar(48, replace(SMALL, blocks=2_000, messages_per_block=per_block), Random(7))
    sent = 0
    for block in range(1, 2_001):
        due = calendar.due(block)
        assert due == sorted(set(due))
        sent += len(due)
    assert sent / 2_000 / 12 == pytest.approx(per_block, rel=0.03)


@pytest.mark.parametrize("sizes", SIZES)
def test_sizes_have_the_mean_of_the_load(sizes: str) -> None:
    settings = replace(SMALL, load=0.1, sizes=sizes)
    assert settings.mean_bytes == 0.1 * 500_000 / 2
    draw = size_draws(settings, Random(7))
    drawn = [draw() for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(settings.mean_bytes, rel=0.05)
    assert (len(set(drawn)) == 1) == (sizes == "fixed")


def test_no_message_is_larger_than_a_senders_block() -> None:
    draw = size_draws(replace(SMALL, load=None, size_bytes_mean=900_000, sizes="lognormal"), Random(7))
    drawn = [draw() for _ in range(1_000)]
    assert max(drawn) == BLOCK_BYTES_MAX
    assert min(drawn) >= 1


# --- links ---


def delivered(count: int = 4_000, **values: object) -> list[tuple[int, int]]:
    links = Links(replace(SMALL, **values), Random(7))
    return [links.deliver() for _ in range(count)]


def test_plain_links_take_delay_and_jitter() -> None:
    found = delivered(delay_ms=300, jitter_ms=50)
    assert min(after_ms for after_ms, _ in found) >= 300
    assert sum(after_ms for after_ms, _ in found) / len(found) == pytest.approx(350, abs=5)
    assert {requests for _, requests in found} == {0}


def test_late_bodies_are_the_given_share() -> None:
    found = delivered(late_share=0.25, late_ms=500_000, jitter_ms=0, request_after_blocks=0)
    assert sum(after_ms > 100 for after_ms, _ in found) / len(found) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(("backoff", "blocks_waited"), [(2.0, [0, 1, 3, 7, 15]), (1.0, [0, 1, 2, 3, 4])])
def test_lost_bodies_are_requested_again_with_backoff(backoff: float, blocks_waited: list[int]) -> None:
    found = delivered(lost_share=0.5, jitter_ms=0, request_backoff=backoff)
    waited = {requests: {after_ms for after_ms, count in found if count == requests} for requests in range(5)}
    assert waited == {requests: {blocks * BLOCK_MS + 100} for requests, blocks in enumerate(blocks_waited)}
    assert sum(not requests for _, requests in found) / len(found) == pytest.approx(0.5, abs=0.03)


def test_earliest_copy_of_a_late_body_counts() -> None:
    found = delivered(late_share=1, late_ms=60_000, jitter_ms=0)
    assert max(after_ms for after_ms, _ in found) < max(
        after_ms for after_ms, _ in delivered(late_share=1, late_ms=60_000, request_after_blocks=0)
    )
    assert all(after_ms <= BLOCK_MS or requests for after_ms, requests in found)


# --- the whole network ---


@pytest.mark.parametrize("policy", ["free", "rotating", "favour"])
@pytest.mark.parametrize("traffic", ["spread", "skewed", "one"])
def test_every_message_is_refused_acknowledged_or_unread(policy: str, traffic: str) -> None:
    settings = replace(
        SMALL,
        paras=17,
        load=1.6,
        ingest_bytes=100_000,
        capacity_messages=3,
        policy=policy,
        traffic=traffic,
        messages_per_block=1,
        late_share=0.2,
        lost_share=0.1,
        greedy_share=0.3,
    )
    world = World(settings)
    world.run()
    total = world.tallies[False] + world.tallies[True]
    assert total.offered == total.refused_full + total.refused_size + total.queued
    assert total.queued == total.acknowledged + sum(world.unread)
    assert total.refused_full > 0
    assert sum(world.unread) == sum(recipient.unread for recipient in world.recipients.values())
    assert max(world.unread) == settings.capacity_messages
    assert sum(world.acknowledged_bytes) == total.acknowledged_bytes <= total.queued_bytes < total.transferred_bytes
    assert total.lags.total() == sum(world.acknowledged) == total.acknowledged
    assert total.deliveries.total() == total.queued
    assert min(total.lags) == 1
    assert total.stalled <= total.builds


def test_same_seed_same_report_and_another_seed_another() -> None:
    settings = replace(SMALL, late_share=0.1, lost_share=0.1, sizes="lognormal", traffic="spread")
    first = to_json(simulate(settings))
    assert to_json(simulate(settings)) == first
    assert to_json(simulate(replace(settings, seed=2)))["total"] != first["total"]


def test_progress_counts_every_block_and_samples_are_bounded() -> None:
    seen: list[int] = []
    report = simulate(replace(SMALL, blocks=SAMPLES_MAX * 2 + 1), seen.append)
    assert seen == list(range(1, SAMPLES_MAX * 2 + 2))
    assert len(report.samples) <= SAMPLES_MAX


def scanned(senders: int, blocks: int, size: int, budget: int, capacity: int, every: int) -> tuple[Counter[int], int]:
    """Return lags and refusals of one recipient, by a program that scans every sender in every block and knows of no events."""
    queue: deque[tuple[int, int]] = deque()
    lags: Counter[int] = Counter()
    refused = 0
    for block in range(1, blocks + 1):
        left = budget * every
        while block % every == 0 and queue and left >= size:
            sent_at, _ = queue.popleft()
            lags[block - sent_at] += 1
            left -= size
        for sender in range(1, senders + 1):
            if sum(each == sender for _, each in queue) < capacity:
                queue.append((block, sender))
            else:
                refused += 1
    return lags, refused


@pytest.mark.parametrize(("capacity", "every"), [(1, 1), (3, 1), (4, 3)])
def test_counts_equal_those_of_a_program_that_scans(capacity: int, every: int) -> None:
    settings = NetworkSettings(
        paras=15,
        blocks=120,
        traffic="one",
        messages_per_block=1,
        load=None,
        size_bytes_mean=1_000,
        sizes="fixed",
        ingest_bytes=9_000,
        capacity_messages=capacity,
        build_every_blocks=every,
        policy="prefix",
    )
    total = simulate(settings).total
    lags, refused = scanned(14, 120, 1_000, 9_000, capacity, every)
    assert (total.lag_blocks, total.refused_full_messages) == (distribution(lags), refused)


# --- laws ---


@pytest.mark.parametrize("load", [1.25, 2.0, 4.0])
@pytest.mark.parametrize("policy", ["free", "round-robin", "arrival"])
def test_overload_refuses_its_excess_and_lag_stays_within_the_bound(load: float, policy: str) -> None:
    report = simulate(replace(ONE, load=load, policy=policy))
    assert report.total.refused_share == pytest.approx(1 - 1 / load, abs=0.03)
    assert report.law.refused_share == pytest.approx(1 - 1 / load, abs=0.02)
    bound = 8 * load  # K times the sum of the mean sizes, divided by I
    unused = load / 30  # of each block's budget, at most about one message
    assert report.law.lag_blocks_max == pytest.approx(bound, rel=0.02)
    assert 0.75 * bound < report.total.lag_blocks.mean < bound / (1 - unused)
    assert report.total.jain_bytes > 0.99
    assert report.total.oldest_unread_blocks < bound / (1 - unused) + 2


def test_recipients_own_choice_starves_the_others() -> None:
    report = simulate(replace(ONE, load=1.5, policy="favour"))
    assert report.total.oldest_unread_blocks == ONE.blocks - 1
    assert report.total.jain_bytes == pytest.approx(0.7, abs=0.01)
    assert 1 <= report.total.starved_channels <= 0.3 * 30


def test_greedy_recipients_starve_senders_and_honest_ones_do_not() -> None:
    report = simulate(NetworkSettings(paras=40, blocks=200, load=1.6, ingest_bytes=100_000, greedy_share=0.25))
    assert report.honest is not None
    assert report.greedy is not None
    assert (report.honest.recipients, report.greedy.recipients) == (30, 10)
    assert report.greedy.jain_bytes < 0.8 < 0.95 < report.honest.jain_bytes
    assert report.greedy.oldest_unread_blocks > 3 * report.honest.oldest_unread_blocks
    assert (
        report.honest.acknowledged_messages + report.greedy.acknowledged_messages == report.total.acknowledged_messages
    )


def test_one_late_body_stalls_document_order_and_prefix_costs_more() -> None:
    late = replace(ONE, load=0.7, late_share=0.1, request_after_blocks=0)
    free, prefix, arrival = (simulate(replace(late, policy=policy)).total for policy in ("free", "prefix", "arrival"))
    assert free.stalled_blocks > 0 == arrival.stalled_blocks
    assert arrival.lag_blocks.mean < free.lag_blocks.mean < prefix.lag_blocks.mean


def test_requests_shorten_what_late_bodies_cost() -> None:
    late = replace(ONE, load=0.7, late_share=0.1, request_after_blocks=0)
    waiting, asking = simulate(late).total, simulate(replace(late, request_after_blocks=1)).total
    assert waiting.re_requests == 0 < asking.re_requests
    assert asking.stalled_blocks < waiting.stalled_blocks
    assert asking.lag_blocks.mean < waiting.lag_blocks.mean


@pytest.mark.parametrize("every", [2, 6])
def test_slow_recipient_adds_half_of_its_interval(every: int) -> None:
    lag = simulate(replace(ONE, load=0.5, build_every_blocks=every)).total.lag_blocks
    assert lag.mean == pytest.approx((every + 1) / 2, rel=0.01)
    assert lag.max == every


# --- figures ---


def test_distribution_has_mean_and_nearest_rank_percentiles() -> None:
    assert distribution(Counter({1: 50, 2: 49, 9: 1})) == Distribution(1.57, 1, 2, 9)
    assert distribution(Counter()) == Distribution(0.0, 0, 0, 0)


def test_jains_index() -> None:
    assert jain([3, 3, 3]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([]) == jain([0, 0]) == 1


def flooded(nodes: int, degree: int) -> int:
    """Count the copies that flooding sends on a ring lattice: each node passes on the first copy to all but its origin."""
    steps = [*range(1, degree // 2 + 1), *range(-(degree // 2), 0)]
    copies, reached = 0, {0}
    front: deque[tuple[int, float]] = deque([(0, inf)])
    while front:
        node, origin = front.popleft()
        for neighbour in ((node + step) % nodes for step in steps):
            if neighbour != origin:
                copies += 1
                if neighbour not in reached:
                    reached.add(neighbour)
                    front.append((neighbour, node))
    assert len(reached) == nodes
    return copies


@pytest.mark.parametrize(("nodes", "degree"), [(100, 6), (30, 4), (9, 2)])
def test_flooding_sends_as_many_copies_as_counted(nodes: int, degree: int) -> None:
    assert flooding_copies(nodes, degree) == flooded(nodes, degree)


def test_costs_of_the_reference() -> None:
    assert flooding_copies(100, 6) == 501
    assert kafka_copies(3, 1) == 4
    found = {cost.transport: (cost.bytes, cost.amplification) for cost in costs(NetworkSettings(), 10, 12)}
    assert found == {
        "optimum": (10, 1.0),
        "direct": (12, 1.2),
        "kafka": (40, 4.0),
        "tree": (990, 99.0),
        "flooding": (5_010, 501.0),
    }


def test_report_in_json_has_the_settings_and_rounded_numbers() -> None:
    settings = replace(SMALL, greedy_share=1.0)
    row = to_json(simulate(settings))
    assert row["settings"] == asdict(settings)
    assert row["honest"] is None
    assert row["greedy"] == row["total"]
    assert row["total"]["load"] == round(row["total"]["load"], 6)
