# SPDX-License-Identifier: Apache-2.0
"""`validator state`, on states made in this process; `tests/streaming` runs it during a job."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from validator_simulators.settings import SimulationSettings

from tests.cli.follower import LANE, invoke
from tests.cli.stored_job import BATCH, Job, KeptLane, maker, refused
from tests.distributions import files_of, on_path, written
from tests.protocol_from_outside import FILES, NAME
from tests.unit.lanes.chains import chain, inputs_of
from tests.unit.lanes.test_upgrades import TALLY
from validator.ask.state import read_checkpoint
from validator.config import load_config
from validator.config.toml import to_toml
from validator.core.handlers.state import HandlerStates
from validator.errors import UserError
from validator.kafka.settings import admin_config
from validator.lanes.configured import lane_definition
from validator.lanes.kept_start import keep_start, start_of
from validator.plugin.runtime import installed_protocol
from validator.protocols.router.rules import ROUTER
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


def test_error_of_the_reader_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no checkpoint"):
        read_checkpoint(tmp_path / "checkpoint", tmp_path / "output", [])


def test_lane_equal_to_its_topics_verifies(job: Callable[..., Job]) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records[:-1], batches=7)
    result = followed.verify()
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].startswith(
        f"OK: lane {LANE} after block 59, batch {BATCH} equals the lane rebuilt from "
    )
    assert "differs" not in result.stdout
    (printed,) = [json.loads(line) for line in followed.verify("--json", f"--lane={LANE}").stdout.splitlines()]
    assert (printed["ok"], printed["records"], printed["executed_block"]) == (True, len(followed.chain.records) - 1, 59)
    checks = {check["what"]: check for check in printed["checks"]}
    assert checks["waiting records"]["stored"] != "0 records"
    assert checks["last receipts on the topic"]["stored"].startswith("59 compared, ")
    assert all(check["same"] for check in checks.values())


def test_later_inputs_and_duplicates_do_not_matter(job: Callable[..., Job]) -> None:
    followed = job()
    records = followed.chain.records
    half = len(records) // 2
    # records sent again are late or duplicates in any batch; and the topics continue beyond the consumed offsets
    again = [*records[:half], *records[: half // 2], *records[half:], *records[-40:]]
    followed.follow(again, batches=5)
    before = dict(followed.consumed)
    followed.follow(records[:30], batches=1, judged=[])
    assert followed.consumed == before
    result = followed.verify("--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["records"] == len(again)


def test_lane_with_another_history_differs(job: Callable[..., Job]) -> None:
    followed = job()
    records = followed.chain.records
    accepted = {
        (each["block"], each["index"]) for each in followed.chain.expected if each["kind"] == "downward" and each["ok"]
    }
    place = next(
        at
        for at, (kind, record) in enumerate(records)
        if kind == "downward-messages" and (record["block"], record["index"]) in accepted
    )
    forged = deepcopy(records)
    forged[place][1]["msg"] = "ff" + forged[place][1]["msg"][2:]
    followed.follow(records, judged=forged)
    para = records[place][1]["para_id"]
    result = followed.verify()
    assert result.exit_code == 1, result.output
    assert f"DIFFERENT: lane {LANE} after block 30" in result.stdout
    assert f"  pages of paras: para {para}\n" in result.stdout, result.stdout
    printed = json.loads(followed.verify("--json").stdout)
    differing = {check["what"] for check in printed["checks"] if not check["same"]}
    assert not printed["ok"]
    assert {"state root", "pages of paras", "fingerprints of records"} <= differing
    assert not {"executed block", "consumed", "accepted", "waiting records"} & differing


def test_lost_record_is_found(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records, judged=followed.chain.records[:-1])
    kind = followed.chain.records[-1][0]
    followed.consumed[followed.prefix + kind, 0] += 1
    printed = json.loads(followed.verify("--json").stdout)
    differing = {check["what"] for check in printed["checks"] if not check["same"]}
    assert {"executed block", "consumed", "waiting records"} <= differing


def test_inputs_removed_by_retention_are_named(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    admin = AdminClient(admin_config(followed.chain.config.kafka))
    for future in admin.delete_records([TopicPartition(f"{followed.prefix}blocks", 0, 3)]).values():
        future.result()
    refused(followed.verify(), f"block 1 is missing: {followed.prefix}blocks begins with block 4")


def test_topics_other_than_the_jobs_are_refused(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    place = (f"{followed.prefix}blocks", 0)
    followed.consumed[place] += 1
    refused(followed.verify(), f"{place[0]}[0] ends at offset 30, but the checkpoint's batch has consumed it up to 31")
    followed.consumed = {("other.blocks", 0): 30}
    refused(followed.verify(), "[topics] prefix: the checkpoint belongs to the topics other.blocks, expected ")


def test_unconfigured_lane_cannot_be_verified(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    refused(followed.verify("--lane=kusama"), "--lane: its first block is unknown: no chain 'kusama' is configured")
    text = followed.chain.config_path.read_text(encoding="utf-8").replace("chains.polkadot", "chains.kusama")
    followed.chain.config_path.write_text(text, encoding="utf-8")
    result = followed.verify()
    assert result.exit_code == 2
    assert "lane polkadot is skipped: it is not configured" in result.stderr
    assert "none of the configured lanes is in the checkpoint" in result.stderr


def test_changed_configuration_is_reported(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    text = followed.chain.config_path.read_text(encoding="utf-8")
    followed.chain.config_path.write_text(
        text.replace("ump_default_weight = ", "ump_default_weight = 1"), encoding="utf-8"
    )
    result = followed.verify()
    # the lane is rebuilt under the configuration that it is stored under
    assert result.exit_code == 0, result.output
    assert "the configuration differs from the one that its state was stored with" in result.stderr


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object]) -> Iterator[Job]:
    """A job whose upward messages are counted by the plugin tally; tests only look at it."""
    folder = tmp_path_factory.mktemp("plugins")
    plugin = written(folder / "plugins", files_of("tally", "1.0.0", TALLY.format(event="counted")))
    with on_path(plugin), pytest.MonkeyPatch.context() as patch:
        yield with_tally(maker(folder, kafka, patch)())


def with_tally(made: Job) -> Job:
    path = made.chain.config_path
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    chain = tables["chains"][LANE]
    for name in ("ump_weights", "ump_failing_messages"):
        chain.pop(name, None)
    chain["handlers"] = [{"name": "tally", "version": "1.0.0"}]
    path.write_text(to_toml(tables), encoding="utf-8")
    made.chain.config = load_config(path)
    made.follow(made.chain.records)
    assert kept(made), "an empty state would prove little"
    return made


def kept(followed: Job) -> list[tuple[bytes, bytes]]:
    states: HandlerStates = followed.state().handler_states
    return [(key, value) for _, key, value in states.entries("tally")]


def test_show_prints_active_plugins_and_their_bytes(followed: Job) -> None:
    document = followed.shown()
    router, tally = document["plugins"]
    assert (router.partition("@")[0], tally) == ("router", "tally@1.0.0")
    assert document["kept_by_plugins"] == [
        {"plugin": "tally", "keys": len(kept(followed)), "bytes": 8 * len(kept(followed))}
    ]
    printed = followed.show()
    assert printed.exit_code == 0, printed.output
    assert f"{router}, {tally}" in printed.stdout
    assert "kept by handlers" in printed.stdout


@pytest.mark.parametrize("limit", [2, 0])
def test_entries_of_a_plugin_are_listed_in_hex_up_to_a_limit(limit: int, followed: Job) -> None:
    entries = kept(followed)
    assert len(entries) > 2
    document = followed.shown("--plugin=tally", f"--limit={limit}")
    assert (document["plugin"], document["keys"], document["bytes"]) == ("tally", len(entries), 8 * len(entries))
    expected = entries[:limit] if limit else entries
    assert document["entries"] == [{"key": key.hex(), "value": value.hex()} for key, value in expected]
    table = followed.show("--plugin=tally", f"--limit={limit}").stdout
    assert [key.hex() in table for key, _ in entries] == [(key, value) in expected for key, value in entries]


def test_plugin_without_state_is_one_error_line(followed: Job) -> None:
    refused(
        followed.show("--plugin=remark"),
        "--plugin: remark keeps nothing in lane polkadot after block 30; these do: tally",
    )
    refused(followed.show("--plugin=tally", "--para=1000"), "found --para and --plugin")


def test_plugin_state_is_exported_and_imported(followed: Job, tmp_path: Path) -> None:
    exported = tmp_path / "STATE.json"
    exported.write_text(json.dumps(followed.shown()))
    other = tmp_path / "other.toml"
    text = followed.chain.config_path.read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    tables["job"]["directory"] = str(tmp_path / "elsewhere")
    tables["chains"][LANE].pop("genesis_paras", None)
    other.write_text(to_toml(tables), encoding="utf-8")
    result = invoke("lanes", "import", str(exported), f"--lane={LANE}", f"--config={other}")
    assert result.exit_code == 0, result.output
    rules = lane_definition(load_config(other), LANE).create().rules
    assert rules.rule_set is ROUTER
    assert [(key, value) for _, key, value in rules.state.handler_states.entries("tally")] == kept(followed)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"Tally": {}}, "state.handler_states.Tally: expected a plugin's name as key, found 'Tally'"),
        ({"tally": {"0": ""}}, "expected bytes in hex, an even number of digits, found"),
        ({"tally": {"": "00"}}, "expected a key of 1 to 128 bytes, found 0"),
        ({"tally": {"00" * 129: "00"}}, "expected a key of 1 to 128 bytes, found 129"),
        ({"tally": {"00": "00" * 65_537}}, "expected at most 65536 bytes, found 65537"),
        ({"tally": []}, "state.handler_states.tally: expected an object"),
    ],
)
def test_impossible_plugin_state_is_one_error_line(
    states: dict[str, object], expected: str, followed: Job, tmp_path: Path
) -> None:
    document = followed.shown()
    document["state"]["handler_states"] = states
    file = tmp_path / "STATE.json"
    file.write_text(json.dumps(document))
    refused(invoke("lanes", "import", str(file), f"--lane={LANE}", followed.chain.option()), expected)


def test_plugin_state_is_verified(followed: Job) -> None:
    printed = followed.verify()
    assert printed.exit_code == 0, printed.output


PARAS = [{"para_id": 2000, "balance": 5}, {"para_id": 2001, "balance": 1_000_000}]


class Stored(KeptLane):
    """A lane that `validator state show` is asked for."""

    def show(self, *arguments: str) -> Any:
        return invoke("state", "show", f"--lane={LANE}", *arguments, f"--config={self.config_path}")

    def shown(self, *arguments: str) -> dict[str, Any]:
        result = self.show(*arguments, "--json")
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stored]:
    return lambda table, items: Stored(tmp_path, monkeypatch, table, items)


@pytest.mark.parametrize("protocol", ["early-hrmp", "xcmp"])
def test_protocol_without_a_view_is_shown_by_its_state_keys(protocol: str, stored: Callable[..., Stored]) -> None:
    of = chain(SimulationSettings(seed=31, blocks=40, lane=LANE), protocol)
    lane = stored(of.table, inputs_of(of.records, protocol))
    definition = installed_protocol(protocol)
    assert definition is not None
    view = json.loads(json.dumps(definition.traces.view(lane.processor().lane.rules.state)))
    document = lane.shown()
    assert document["state"] == view
    assert document["executed_block"] == 40
    assert "kept_by_plugins" not in document
    text = lane.show().stdout
    assert f"{LANE} · after block 40 · batch {BATCH}" in text
    for key, value in view.items():
        assert [key, f"{len(value):,}"] in [line.split() for line in text.splitlines()], text

    para = int(next(iter(view["watermarks"])))
    about = lane.shown(f"--para={para}")
    assert about["state"]["watermarks"] == {str(para): view["watermarks"][str(para)]}
    assert about["state"]["paras"] == [para]
    assert "watermarks (1)" in lane.show(f"--para={para}").stdout
    refused(lane.show("--para=99999"), "knows no para 99999 after block 40; valid paras: ")
    refused(lane.show("--channel=1,2"), "has no channel 1,2 and no request for it; channels of either para: none")
    refused(
        lane.show("--plugin=remark"), f"--plugin: remark keeps nothing in lane {LANE} after block 40; these do: none"
    )


def test_protocol_with_a_view_shows_ingress_queues(stored: Callable[..., Stored]) -> None:
    of = chain(SimulationSettings(seed=31, blocks=41, lane=LANE), "xcmp-network")
    lane = stored(of.table, inputs_of(of.records, "xcmp-network"))
    definition = installed_protocol("xcmp-network")
    assert definition is not None
    view = json.loads(json.dumps(definition.traces.view(lane.processor().lane.rules.state)))
    document = lane.shown()
    assert document["state"] == view
    assert (document["channels"], document["intra_block"], document["require_bodies"]) == ("xcmp", "prefix", True)
    assert "ingress queues (" in lane.show().stdout

    recipient, unread = next(iter(view["ingress"].items()))
    about = lane.shown(f"--para={recipient}")["state"]
    assert [[each["sent_at"], each["sender"]] for each in about["ingress"]] == unread
    assert about["watermark"] == view["watermarks"].get(recipient, {"block": 0, "acked": []})
    assert f"ingress queue ({len(unread)})" in lane.show(f"--para={recipient}").stdout

    block, sender = unread[0]
    channel = lane.shown(f"--channel={sender},{recipient}")
    assert channel["state"]["unread"][0]["sent_at"] == block
    assert f"unread ({len(channel['state']['unread'])})" in lane.show(f"--channel={sender},{recipient}").stdout
    egress = lane.shown(f"--para={sender}")["state"]["egress"]
    assert [[each["sent_at"], each["recipient"]] for each in egress] == sorted(view["egress"][str(sender)])
    refused(lane.show("--para=99999"), "knows no para 99999")
    refused(lane.show(f"--channel={sender},99999"), f"has no channel {sender},99999")


def test_channel_is_shown_by_the_state_keys_that_name_it(stored: Callable[..., Stored]) -> None:
    of = chain(SimulationSettings(seed=31, blocks=40, lane=LANE), "early-hrmp")
    lane = stored(of.table, inputs_of(of.records, "early-hrmp"))
    channels = lane.shown()["state"]["channels"]
    name = next(iter(channels))
    sender, recipient = name.split("->")
    document = lane.shown(f"--channel={sender},{recipient}")
    assert document["channel"] == [int(sender), int(recipient)]
    assert document["state"]["channels"] == {name: channels[name]}
    assert document["state"]["watermarks"] == {}
    shown = lane.show(f"--channel={sender},{recipient}").stdout
    assert f"channel {sender} -> {recipient}" in shown
    assert "sender_deposit" in shown
    refused(lane.show(f"--channel={sender},9"), f"channels of either para: {sender},{recipient}")


def test_protocol_from_outside_is_shown_by_its_view(stored: Callable[..., Stored], tmp_path: Path) -> None:
    with on_path(written(tmp_path / "plugins", FILES)):
        lane = stored({"protocol": NAME, "caps": {"preset": "large"}, "genesis_paras": PARAS}, [])
        document = lane.shown()
        assert (document["places"], document["state"]) == (500, {"paras": PARAS})
        text = lane.show().stdout
        assert "paras of outside" in text
        assert ["2001"] in [line.split() for line in text.splitlines()]
        assert lane.shown("--para=2001")["state"] == {"registered": True}
        assert "1,000,000 [units]" in lane.show("--para=2001").stdout
        refused(lane.show("--para=7"), "knows no para 7 after block 0; valid paras: 2000, 2001")
        refused(lane.show("--channel=2000,2001"), "has no channel 2000,2001")


def test_exported_state_of_a_protocol_from_outside_is_imported(stored: Callable[..., Stored], tmp_path: Path) -> None:
    with on_path(written(tmp_path / "plugins", FILES)):
        exported = tmp_path / "STATE.json"
        exported.write_text(json.dumps(stored({"protocol": NAME, "genesis_paras": PARAS}, []).shown()))
        other = tmp_path / "other.toml"
        job = {"directory": str(tmp_path / "other")}
        other.write_text(to_toml({"job": job, "chains": {LANE: {"protocol": NAME, "caps": {"preset": "small"}}}}))
        result = invoke("lanes", "import", str(exported), f"--lane={LANE}", f"--config={other}")
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith(f"lane {LANE} starts with block 1: 2 paras; stored as ")
        rules: Any = lane_definition(load_config(other), LANE).create().rules
        assert sorted(rules.state.paras) == [2000, 2001]
        assert rules.state.configuration.hrmp_channel_max_places == 2
        refused_file = tmp_path / "refused.json"
        refused_file.write_text('{"paras": 3}')
        line = invoke("lanes", "import", str(refused_file), f"--lane={LANE}", f"--config={other}")
        refused(line, "refused.json.paras: expected an array, found 3")


def test_protocol_without_state_files_is_refused_in_one_line(tmp_path: Path) -> None:
    config_path, file = tmp_path / "validator.toml", tmp_path / "STATE.json"
    file.write_text("{}")
    job = {"directory": str(tmp_path / "job")}
    config_path.write_text(to_toml({"job": job, "chains": {LANE: {"protocol": "early-hrmp"}}}))
    result = invoke("lanes", "import", str(file), f"--lane={LANE}", f"--config={config_path}")
    refused(result, f"chains.{LANE}.state: protocol early-hrmp cannot start from a state file")
