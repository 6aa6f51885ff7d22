# SPDX-License-Identifier: Apache-2.0
"""`validator state show`, on states made in this process; `tests/streaming` runs it during a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import LANE, invoke
from tests.cli.stored_job import BATCH, Job, refused
from validator.ask import state
from validator.config import load_config
from validator.lanes.configured import lane_definition
from validator.lanes.kept_start import keep_start, start_of
from validator.protocols.router.statefile import write_state

if TYPE_CHECKING:
    from pathlib import Path


def test_show_prints_a_summary_of_the_lane(job: Callable[..., Job]) -> None:
    followed = job()
    last = len(followed.chain.records) - 1
    followed.follow(followed.chain.records[:last])
    worker = followed.worker()
    printed = followed.show()
    assert printed.exit_code == 0, printed.output
    lane = worker.lane
    assert f"{LANE} · after block {lane.executed_block} · batch {BATCH}" in printed.stdout
    assert lane.counters.waiting > 0
    assert f"  {lane.waits_for()}" in printed.stdout
    for line in (
        f"session             {lane.rules.session}",
        f"channels            {len(followed.state().hrmp_channels)}",
        f"journal     3 batches with {len(b''.join(followed.store.committed.journal)) // 1000} kB",
        f"summary     0x{worker.summary().hex()}",
    ):
        assert line in printed.stdout, printed.stdout
    assert lane.rules.state_root().hex() in printed.stdout.replace("\n", "").replace(" ", "")
    assert [path.name for path in followed.checkpoint.parent.iterdir()] == ["checkpoint"], "nothing is left behind"


def test_exported_lane_can_be_imported(job: Callable[..., Job], tmp_path: Path) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records)
    document = followed.shown()
    worker = followed.worker()
    assert document["state"] == write_state(followed.state())
    assert document["state"]["contents"], "an empty state would prove little"
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


def test_runtime_digest_is_that_of_the_records_of_the_executed_block(job: Callable[..., Job]) -> None:
    followed = job(blocks=12)
    followed.follow(followed.chain.records)
    definition = lane_definition(followed.chain.config, LANE)
    assert followed.shown()["runtime_digest"] is None, "nothing is kept of the start"
    lanes = followed.checkpoint.parent / "lanes"
    start = start_of(followed.chain.config, definition)
    keep_start(lanes, LANE, start)
    document = followed.shown()
    assert document["runtime_digest"] == definition.digest_at(12).hex()
    assert document["store"]["digest_of_all_epochs"] == definition.runtime_digest.hex()
    assert definition.digest_at(12).hex() in followed.show().stdout.replace("\n", "").replace(" ", "")
    others = tuple(each._replace(digest="00" * 32) for each in start.epochs)
    keep_start(lanes, LANE, replace(start, epochs=others))
    assert followed.shown()["runtime_digest"] is None, "the job has started with another runtime since then"
    assert "not known" in followed.show().stdout


def test_show_of_para_prints_all_of_its_state(job: Callable[..., Job]) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records)
    exported, held = followed.shown()["state"], followed.state()
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
        expected = {str(para): exported[key][str(para)]} if str(para) in exported[key] else {}
        assert part[key] == expected, key
    involved = [name for name in exported["channel_set"] if str(para) in name.split("->")]
    assert part["channel_set"] == involved
    assert part["channels"] == {name: exported["channels"][name] for name in involved}
    assert part["contents"] == {name: exported["contents"][name] for name in involved if name in exported["contents"]}

    printed = followed.show(f"--para={para}").stdout
    assert f"{LANE} · para {para} · after block 60" in printed
    assert f"inbound channels ({len(held.hrmp_ingress_channels_index[para])})" in printed
    for sender in held.hrmp_ingress_channels_index[para]:
        assert f" {sender} -> {para} " in printed
    account = held.accounts[para]
    assert f"{account.free:,} free, {account.reserved:,} reserved" in printed


def test_show_of_channel_prints_its_messages(job: Callable[..., Job]) -> None:
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
    printed = followed.show(f"--channel={sender},{recipient}").stdout
    assert f"{len(messages)} of {channel.limit_used_places:,} places" in printed
    assert channel.mqc_head.hex() in printed.replace("\n", "").replace(" ", "")
    numbers = [line.split()[0] for line in printed.split("MQC head after it")[1].splitlines() if line.strip()]
    first = channel.messages_sent - len(messages) + 1
    assert [int(number) for number in numbers if number.isdecimal()][: len(messages)] == list(
        range(first, channel.messages_sent + 1)
    )


def test_unknown_item_is_one_error_line(job: Callable[..., Job], tmp_path: Path) -> None:
    followed = job()
    refused(followed.show(), "no lane 'polkadot' in the checkpoint after batch 17; lanes in it: none, ")
    followed.follow(followed.chain.records)
    refused(invoke("state", "show", "--lane=kusama", followed.chain.option()), "no lane 'kusama'")
    assert invoke("state", "show", followed.chain.option()).stdout == followed.show().stdout, "the only lane"
    refused(followed.show("--para=9999"), "--para: lane polkadot knows no para 9999 after block 30; valid paras: ")
    sender, recipient = next(iter(followed.state().hrmp_channels))
    gone = followed.show(f"--channel={sender},9999")
    refused(gone, f"--channel: lane polkadot has no channel {sender},9999 and no request for it")
    assert f"{sender},{recipient}" in gone.stderr
    for text in ("2000", "2000,x", "1,2,3", "2000,99999999999", "-1,2"):
        refused(followed.show(f"--channel={text}"), "--channel: expected SENDER,RECIPIENT")
    refused(followed.show("--para=1", "--channel=1,2"), "found --para and --channel")


def test_missing_checkpoint_is_reported_before_spark_starts(job: Callable[..., Job]) -> None:
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
def test_damaged_store_is_one_error_line(job: Callable[..., Job], damage: Callable[[Any], object]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    damage(followed.store.committed)
    refused(followed.show(), "lane polkadot: its state in the checkpoint cannot be used: ")


def test_error_of_the_reader_is_passed_on(
    job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    with pytest.raises(state.UserError, match="there is no checkpoint"):
        state.read_checkpoint(tmp_path / "checkpoint", tmp_path / "output", [])
