# SPDX-License-Identifier: Apache-2.0
"""The fold of records: what is kept, counted and forgotten, without pages."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.console.records import BLOCK_MS, LATENCY_MS, START_MS, dead_letter, simulated, verdict
from validator.codec.json_form import shown_json
from validator.console import model as model_module
from validator.console.channels import draw_circle, draw_matrix
from validator.console.model import KeptChannel, LaneModel, Model
from validator.console.names import LaneLink
from validator.console.overview import causes
from validator.console.verdicts import Wanted, listed
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.job.lag import Lag
from validator.kafka.reader import TopicRecord
from validator.transports.lines import Fed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from validator.config import Config

CAPACITY = {"kind": "OutboundHrmp/CapacityExceeded", "idx": 0, "count": 4, "limit": 3}


@pytest.fixture(scope="module")
def model(chain_records: Sequence[TopicRecord], console_config: Config) -> Model:
    made = Model(console_config.chains)
    made.take(chain_records)
    return made


@pytest.fixture(scope="module")
def lane(model: Model) -> LaneModel:
    return model.lanes["polkadot"]


def test_counts_are_those_of_the_chain(model: Model, lane: LaneModel) -> None:
    expected = simulated().expected
    assert model.strangers == 0
    assert len(lane.verdicts) == lane.verdicts_read == len(expected)
    assert lane.tally.outcome == Counter("accepted" if each["ok"] else "rejected" for each in expected)
    assert lane.tally.error == Counter(each["error"]["kind"] for each in expected if not each["ok"])
    assert lane.tally.kind == Counter(each["kind"] for each in expected)
    assert lane.tally.rejected_of_para.total() == lane.tally.outcome["rejected"]


def test_blocks_have_their_latency(lane: LaneModel) -> None:
    assert [block.block for block in lane.blocks] == list(range(1, 61))
    assert lane.executed_block == 60
    assert lane.session == 6
    assert {block.latency_ms for block in lane.blocks} == {LATENCY_MS + each * 20 for each in range(7)}
    assert sum(block.rejected for block in lane.blocks) == lane.tally.outcome["rejected"]
    assert max(lane.rates.accepted) == (START_MS + 59 * BLOCK_MS + LATENCY_MS) // 1000


def test_channels_count_their_messages(lane: LaneModel) -> None:
    sent = Counter(
        (verdict.para_id, recipient)
        for verdict in lane.verdicts
        if verdict.kind == "candidate"
        for recipient in verdict.recipients
    )
    assert sent
    assert {ends: channel.messages for ends, channel in lane.channels.items() if channel.messages} == sent


def test_headroom_is_the_newest_record(lane: LaneModel, chain_records: Sequence[TopicRecord]) -> None:
    last: dict[tuple[int, int], int] = {}
    for record in chain_records:
        if record.topic == "headroom" and "sender" in (shown := shown_json("headroom", record.value)):
            last[shown["sender"], shown["recipient"]] = shown["places_left"]
    assert len(last) > 100
    for ends, places in last.items():
        now = lane.channels[ends].now
        assert now is not None
        assert now["places_left"] == places
    assert "full" in {channel.state for channel in lane.channels.values()}


def test_partitions_in_any_order_show_the_same(chain_records: Sequence[TopicRecord], lane: LaneModel) -> None:
    """Once partitions were added to a topic, a key's former partition keeps a record, which may be read last."""
    again = Model(["polkadot"])
    kept = [each for each in chain_records if each.topic in ("headroom", "lanes")]
    early = {(each.topic, each.key): each for each in kept[: len(kept) // 2]}
    again.take([each._replace(partition=1) for each in kept])
    again.take(early.values())
    found = again.lanes["polkadot"]
    assert found.status == lane.status
    assert {para: each.now for para, each in found.paras.items()} == {
        para: each.now for para, each in lane.paras.items() if each.now is not None
    }
    assert {ends: each.now for ends, each in found.channels.items()} == {
        ends: each.now for ends, each in lane.channels.items() if each.now is not None
    }


def test_requests_follow_their_events(lane: LaneModel) -> None:
    events: dict[tuple[int, int], str] = {}
    for event in lane.events:
        if event["event"] in ("requested", *model_module.ENDING):
            events[event["sender"], event["recipient"]] = event["event"]
    assert set(lane.requests) == {ends for ends, event in events.items() if event == "requested"}
    assert lane.requests


def test_deposits_are_those_of_the_events(lane: LaneModel) -> None:
    sender = next(event["sender"] for event in lane.events if event["sender_reserved"])
    reserved, returned = lane.deposits(sender)
    own = [event for event in lane.events if sender in (event["sender"], event["recipient"])]
    assert reserved == sum(event["sender_reserved"] for event in own if event["sender"] == sender) + sum(
        event["recipient_reserved"] for event in own if event["recipient"] == sender
    )
    assert 0 <= returned <= reserved


def test_oldest_verdicts_of_the_largest_lane_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "VERDICTS_MAX", 10)
    model = Model()
    model.take([verdict("quiet", 1, 0, CAPACITY)])
    model.take([verdict("busy", block, 0, None if block % 2 else CAPACITY) for block in range(1, 31)])
    quiet, busy = model.lanes["quiet"], model.lanes["busy"]
    assert len(quiet.verdicts) == 1
    assert [each.block for each in busy.verdicts] == list(range(22, 31))
    assert busy.tally.outcome == {"rejected": 5, "accepted": 4}
    assert busy.verdicts_read == 30


def test_number_of_lanes_and_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "LANES_MAX", 2)
    monkeypatch.setattr(model_module, "PARAS_MAX", 3)
    model = Model()
    model.take([verdict(f"lane-{number}", 1, 0) for number in range(5)])
    assert list(model.lanes) == ["lane-0", "lane-1"]
    assert model.strangers == 3
    model.take([verdict("lane-0", 2, index) for index in range(9)])
    assert len(model.lanes["lane-0"].paras) == 3


def test_strangers_records_change_nothing(chain_records: Sequence[TopicRecord]) -> None:
    model = Model(["polkadot"])
    model.take([TopicRecord("verdicts", 0, 0, b"", b"nonsense", 0), TopicRecord("lanes", 0, 0, b"", b"", 0)])
    assert model.strangers == 2
    blocks = [record for record in chain_records if record.topic == "blocks"]
    other = Model(["kusama"])
    other.take(blocks)  # an input names a lane that the job has not written about
    assert list(other.lanes) == ["kusama"]


def test_dead_letters_and_what_was_put_back() -> None:
    model = Model()
    model.take([dead_letter(f"letter {number}", b"abc", number) for number in range(3)])
    assert [letter.detail for letter in model.not_put_back()] == ["letter 2", "letter 1", "letter 0"]
    assert model.letters[0].bytes == 3


def test_channel_says_how_full_it_is() -> None:
    def record(places: int, size: int, *, is_open: bool = True) -> dict[str, object]:
        return {"block": 1, "open": is_open, "places_left": places, "bytes_left": size, "message_size_max": 10}

    channel = KeptChannel()
    assert (channel.state, channel.used()) == ("unknown", None)
    channel.take(record(10, U32_MAX))
    assert (channel.state, channel.used()) == ("room", 0.0)
    channel.take(record(2, U32_MAX))
    assert (channel.state, channel.used()) == ("nearly", 0.8)
    channel.take(record(2, 0))
    assert channel.state == "full"
    channel.take(record(0, 0, is_open=False))
    assert channel.state == "gone"
    channel.take(record(4, 100))
    assert (channel.state, channel.places_most) == ("room", 4)


def test_what_needs_attention_is_said_once_by_cause(model: Model, lane: LaneModel) -> None:
    found = {cause.title: cause for cause in causes(model, lane, Lag(70, 12))}
    full = sum(channel.state == "full" for channel in lane.channels.values())
    assert full > 1
    assert found[f"{full} channels are full"].severity == "bad"
    assert found["polkadot is 12 blocks behind"].text == "70 records for it are not consumed."
    assert next(cause.severity for cause in causes(model, lane, None)) == "bad"


def test_same_rejection_in_a_row_needs_attention() -> None:
    model = Model()
    model.take([verdict("polkadot", block, 0, CAPACITY) for block in range(1, 5)])
    titles = [cause.title for cause in causes(model, model.lanes["polkadot"], None)]
    assert titles == ["Para 2000 was rejected 4 times in a row"]
    model.take([verdict("polkadot", 5, 0)])
    assert causes(model, model.lanes["polkadot"], None) == []


def test_lane_that_a_transport_feeds_needs_attention_once_it_is_silent(model: Model, lane: LaneModel) -> None:
    fed = Fed("relay-chain", 300.0)
    since_ms = lane.newest_block_ms or lane.status_ms
    assert since_ms

    def titles(fed: Fed | None, after_s: int) -> list[str]:
        return [cause.title for cause in causes(model, lane, None, fed, since_ms + after_s * 1_000)]

    silent = "No new block of polkadot for 10 min"
    assert titles(fed, 600)[0] == silent
    assert silent not in titles(None, 600)
    assert not any(title.startswith("No new block") for title in titles(fed, 299))


@pytest.mark.parametrize(
    ("query", "blocks"),
    [
        ({"outcome": "rejected"}, {2, 4, 6, 8}),
        ({"outcome": "accepted", "block": "3..6"}, {3, 5}),
        ({"rule": CAPACITY["kind"], "block": "7..9"}, {8}),
        ({"para": "2000", "block": "5"}, {5}),
        ({"kind": "request"}, set()),
        ({"before": "4"}, {1, 2, 3}),
    ],
)
def test_filters(query: dict[str, str], blocks: set[int]) -> None:
    model = Model()
    model.take([verdict("polkadot", block, 0, None if block % 2 else CAPACITY) for block in range(1, 10)])
    found = listed(model.lanes["polkadot"].newest(), Wanted.of(query | {"view": "every"}))
    assert {row["block"] for row in found.rows} == blocks


def test_pages_of_verdicts_have_each_once() -> None:
    model = Model()
    model.take([verdict("polkadot", block, index, CAPACITY) for block in range(1, 31) for index in range(9)])
    lane = model.lanes["polkadot"]
    seen: list[tuple[int, int]] = []
    before: int | None = None
    while True:
        found = listed(lane.newest(), Wanted(before=before))
        seen += [(row["block"], row["index"]) for row in found.rows]
        before = found.next_before
        if before is None:
            break
    assert len(seen) == len(set(seen)) == 270


@pytest.mark.parametrize("query", [{"para": "x"}, {"para": str(2**40)}, {"outcome": "maybe"}, {"block": "1..b"}])
def test_wrong_filter_is_named(query: dict[str, str]) -> None:
    with pytest.raises(UserError, match=next(iter(query))):
        Wanted.of(query)


def test_map_draws_full_channels_first(lane: LaneModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validator.console.channels.MAP_CHANNELS_MAX", 5)
    link = LaneLink.of("polkadot")
    drawn = draw_circle(lane.channels, link)
    assert drawn.channels == 5
    assert str(drawn.svg).count("e-bad") == 5
    cells = draw_matrix(lane.channels, link)
    assert (cells.channels, cells.channels_left_out) == (5, drawn.channels_left_out)
    assert str(cells.svg).count('class="cell"') == str(cells.svg).count("f-full") == 5
    open_ones = sum(channel.state != "gone" for channel in lane.channels.values())
    assert drawn.channels_left_out == open_ones - 5


def test_paras_are_named_and_amounts_have_the_token() -> None:
    link = LaneLink.of("polkadot-archive", {"4711": "Ours", "2000": "Another"})
    assert (link, link.names[2004], link.names[4711], link.names[2000]) == (
        "/lanes/polkadot-archive", "Moonbeam", "Ours", "Another",
    )  # fmt: skip
    assert [link.amount(value) for value in (0, 1, 10**10, 12_345_678 * 10**8)] == [
        "0 DOT", "0.0000000001 DOT", "1 DOT", "123,456.78 DOT",
    ]  # fmt: skip
    assert LaneLink.of("polkadotx").names == {}
    assert LaneLink.of("devnet").amount(10**10) == "10,000,000,000"
    assert [link.called(text) for text in ("moonb", "hydration", "b", "nobody")] == [2004, 2034, None, None]
