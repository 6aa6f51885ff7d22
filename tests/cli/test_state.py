# SPDX-License-Identifier: Apache-2.0
"""`validator state show`, on states made in this process; `tests/streaming` has it beside a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import LANE, invoke
from tests.cli.stored_job import BATCH, Job, refused
from validator.config import load_config
from validator.lanes.configured import lane_definition
from validator.protocols.router.statefile import write_state
from validator.service import state

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lane_is_shown_in_figures(job: Callable[..., Job]) -> None:
    followed = job()
    last = len(followed.chain.records) - 1
    followed.follow(followed.chain.records[:last])
    worker = followed.worker()
    told = followed.show()
    assert told.exit_code == 0, told.output
    lane = worker.lane
    assert f"{LANE} · after block {lane.executed_block} · batch {BATCH}" in told.stdout
    assert lane.counters.waiting > 0
    assert f"  {lane.waits_for()}" in told.stdout
    for line in (
        f"session             {lane.rules.session}",
        f"channels            {len(followed.state().hrmp_channels)}",
        f"journal     3 batches with {len(b''.join(followed.store.committed.journal)) // 1000} kB",
        f"summary     {worker.summary().hex()}",
    ):
        assert line in told.stdout, told.stdout
    assert lane.rules.state_root().hex() in told.stdout.replace("\n", "").replace(" ", "")
    assert [path.name for path in followed.checkpoint.parent.iterdir()] == ["checkpoint"], "nothing is left behind"


def test_a_whole_lane_is_a_state_that_can_be_imported(job: Callable[..., Job], tmp_path: Path) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records)
    document = followed.shown()
    worker = followed.worker()
    assert document["state"] == write_state(followed.state())
    assert document["state"]["contents"], "an empty one would prove little"
    assert (document["lane"], document["batch"]) == (LANE, BATCH)
    assert (document["executed_block"], document["first_block"]) == (60, 61)
    assert document["state_root"] == worker.lane.rules.state_root().hex()
    assert document["counters"]["consumed"] == len(followed.chain.records)

    exported = tmp_path / "STATE.json"
    exported.write_text(json.dumps(document))
    other = tmp_path / "other.toml"
    text = followed.chain.config_path.read_text(encoding="utf-8")
    other.write_text(text.replace(str(followed.checkpoint.parent), str(tmp_path / "other")), encoding="utf-8")
    result = invoke("lanes", "import", str(exported), f"--lane={LANE}", f"--config={other}")
    assert result.exit_code == 0, result.output
    definition = lane_definition(load_config(other), LANE)
    fork = definition.create().rules
    assert definition.first_block == 61
    assert write_state(fork.state) == document["state"]  # type: ignore[attr-defined]


def test_a_para_is_shown_with_all_that_concerns_it(job: Callable[..., Job]) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records)
    whole, held = followed.shown()["state"], followed.state()
    para = max(held.hrmp_ingress_channels_index, key=lambda each: len(held.hrmp_ingress_channels_index[each]))
    document = followed.shown(f"--para={para}")
    part = document["state"]
    assert document["para_id"] == para
    for key in (
        "balances",
        "watermarks",
        "digests",
        "dmq",
        "dmq_heads",
        "ump_queues",
        "ingress",
        "egress",
        "mqc_heads",
    ):
        expected = {str(para): whole[key][str(para)]} if str(para) in whole[key] else {}
        assert part[key] == expected, key
    involved = [name for name in whole["channel_set"] if str(para) in name.split("->")]
    assert part["channel_set"] == involved
    assert part["channels"] == {name: whole["channels"][name] for name in involved}
    assert part["contents"] == {name: whole["contents"][name] for name in involved if name in whole["contents"]}

    told = followed.show(f"--para={para}").stdout
    assert f"{LANE} · para {para} · after block 60" in told
    assert f"inbound channels ({len(held.hrmp_ingress_channels_index[para])})" in told
    for sender in held.hrmp_ingress_channels_index[para]:
        assert f" {sender} -> {para} " in told
    account = held.accounts[para]
    assert f"{account.free:,} free, {account.reserved:,} reserved" in told


def test_a_channel_is_shown_with_its_messages(job: Callable[..., Job]) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records)
    held = followed.state()
    (sender, recipient), messages = max(held.hrmp_channel_contents.items(), key=lambda each: len(each[1]))
    channel, name = held.hrmp_channels[sender, recipient], f"{sender}->{recipient}"
    document = followed.shown(f"--channel={sender},{recipient}")
    assert document["channel"] == [sender, recipient]
    assert document["messages_sent"] == channel.messages_sent
    assert list(document["state"]["channels"]) == [name]
    assert document["state"]["contents"] == {
        name: [{"sent_at": message.sent_at, "data": message.data.hex()} for message in messages]
    }
    told = followed.show(f"--channel={sender},{recipient}").stdout
    assert f"{len(messages)} of {channel.limit_used_places:,} places" in told
    assert channel.mqc_head.hex() in told.replace("\n", "").replace(" ", "")
    numbers = [line.split()[0] for line in told.split("MQC head after it")[1].splitlines() if line.strip()]
    first = channel.messages_sent - len(messages) + 1
    assert [int(number) for number in numbers if number.isdecimal()][: len(messages)] == list(
        range(first, channel.messages_sent + 1)
    )


def test_what_is_not_there_is_said_in_one_line(job: Callable[..., Job], tmp_path: Path) -> None:
    followed = job()
    refused(followed.show(), "no lane 'polkadot' in the checkpoint after batch 17; there are: none")
    followed.follow(followed.chain.records)
    refused(invoke("state", "show", "--lane=kusama", followed.chain.option()), "no lane 'kusama'")
    refused(
        followed.show("--para=9999"), "--para: lane polkadot knows nothing of para 9999 after block 30; valid are: "
    )
    sender, recipient = next(iter(followed.state().hrmp_channels))
    gone = followed.show(f"--channel={sender},9999")
    refused(gone, f"--channel: lane polkadot has no channel {sender},9999 and no request for it")
    assert f"{sender},{recipient}" in gone.stderr
    for text in ("2000", "2000,x", "1,2,3", "2000,99999999999", "-1,2"):
        refused(followed.show(f"--channel={text}"), "--channel: expected SENDER,RECIPIENT")
    refused(followed.show("--para=1", "--channel=1,2"), "found --para and --channel")


def test_without_a_checkpoint_it_is_said_before_spark_starts(job: Callable[..., Job]) -> None:
    followed = job()
    (followed.checkpoint / "commits" / str(BATCH)).unlink()
    refused(followed.show(), "the job has not finished a batch yet")
    refused(followed.verify(), "the job has not finished a batch yet")
    (followed.checkpoint / "commits").rmdir()
    followed.checkpoint.rmdir()
    refused(followed.show(), f"{followed.checkpoint}: there is no checkpoint")


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept.slots.popitem(),
        lambda kept: kept.journal.pop(),
        lambda kept: kept.journal.reverse(),
        lambda kept: setattr(kept, "head", b"\x63" + kept.head[1:]),
        lambda kept: setattr(kept, "head", kept.head[:-1]),
    ],
)
def test_a_damaged_store_is_said_in_one_line(job: Callable[..., Job], damage: Callable[[Any], object]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    damage(followed.store.committed)
    refused(followed.show(), "lane polkadot: its state in the checkpoint cannot be used: ")


def test_a_reader_that_fails_is_told_in_its_words(
    job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    with pytest.raises(state.UserError, match="there is no checkpoint"):
        state.read_checkpoint(tmp_path / "checkpoint", tmp_path / "output", [])
