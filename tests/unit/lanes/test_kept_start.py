# SPDX-License-Identifier: Apache-2.0
"""A lane does not silently continue under another configuration than the one that it began with, key by key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.change_page import configuration_keys, row_of
from validator.config import Config
from validator.core import lane as core_lane
from validator.core.handlers import state
from validator.errors import UserError
from validator.job.start_check import CHAIN, Difference, Effect, differences, refuse_changes
from validator.lanes import parked, processor, store
from validator.lanes.configured import lane_definition
from validator.lanes.definition import RULES
from validator.lanes.kept_start import (
    NOTHING,
    START_VERSION,
    Accepted,
    AcceptedChange,
    LaneStart,
    keep_start,
    kept_starts,
    read_accepted,
    refuse_changed_past,
    refuse_newer_pages,
    start_of,
)
from validator.plugin.lock import write_lock
from validator.plugin.registry import discover, load_all

BASE: dict[str, Any] = {
    "topics": {"prefix": "p."},
    "kafka": {"bootstrap.servers": "localhost:1"},
    "job": {"directory": "job"},
    "chains": {"a": {"genesis_paras": [{"para_id": 1, "balance": 5}], "host_configuration": {"preset": "minimal"}}},
}
HANDLERS = [{"name": "remark"}]


def chain(**keys: Any) -> dict[str, Any]:
    return {"chains": {"a": {**BASE["chains"]["a"], **keys}}}


def para(**keys: Any) -> dict[str, Any]:
    return chain(genesis_paras=[{"para_id": 1, "balance": 5, **keys}])


def handlers(**keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return chain(handlers=HANDLERS), chain(handlers=[{**HANDLERS[0], **keys}])


def rules(**keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    entry = {"from_block": 10, "profile": "router/2021-09"}
    changed = {name: value for name, value in {**entry, **keys}.items() if value is not None}
    return chain(rules=[entry]), chain(rules=[changed])


def table(name: str, **keys: Any) -> dict[str, Any]:
    return {name: {**BASE.get(name, {}), **keys}}


CHANGES: dict[str, Any] = {
    "topics.prefix": table("topics", prefix="q."),
    "topics.input_partitions": table("topics", input_partitions=2),
    "topics.output_partitions": table("topics", output_partitions=2),
    "topics.replication_factor": table("topics", replication_factor=3),
    "topics.retention_ms": table("topics", retention_ms={"verdicts": 1}),
    "kafka": table("kafka", **{"linger.ms": "5"}),
    "job.directory": table("job", directory="elsewhere"),
    "job.master": table("job", master="local[1]"),
    "job.state_partitions": table("job", state_partitions=2),
    "job.driver_memory": table("job", driver_memory="3g"),
    "job.worker_memory": table("job", worker_memory="3g"),
    "job.jit": table("job", jit="full"),
    "job.trigger_interval_ms": table("job", trigger_interval_ms=5),
    "job.max_records_per_trigger": table("job", max_records_per_trigger=5),
    "job.rebuild": table("job", rebuild=True),
    "job.give_up_after": table("job", give_up_after=5),
    "job.stalled_after": table("job", stalled_after=50),
    "job.blocks_ahead_max": table("job", blocks_ahead_max=5),
    "job.waiting_bytes_max": table("job", waiting_bytes_max=5),
    "job.duplicate_window_blocks": table("job", duplicate_window_blocks=5),
    "job.handler_seconds_max": table("job", handler_seconds_max=5.0),
    "job.headroom_interval_blocks": table("job", headroom_interval_blocks=5),
    "job.root_interval_blocks": table("job", root_interval_blocks=5),
    "dead_letters.attempts_max": table("dead_letters", attempts_max=5),
    "metrics.listen": table("metrics", listen="127.0.0.1:9464"),
    "metrics.transports": table("metrics", transports={"mail": "127.0.0.1:9465"}),
    "metrics.paras": table("metrics", paras=[2000]),
    "metrics.paras_max": table("metrics", paras_max=7),
    "metrics.channels_max": table("metrics", channels_max=7),
    "schema_registry.url": table("schema_registry", url="https://registry.example"),
    "schema_registry.user": table("schema_registry", url="https://registry.example", user="me", password="1"),
    "schema_registry.password": table("schema_registry", url="https://registry.example", user="me", password="2"),
    "schema_registry.ca_file": table("schema_registry", url="https://registry.example", ca_file="ca.pem"),
    "schema_registry.certificate_file": table(
        "schema_registry", url="https://registry.example", certificate_file="client.pem"
    ),
    "schema_registry.key_file": table(
        "schema_registry", url="https://registry.example", certificate_file="client.pem", key_file="client.key"
    ),
    "schema_registry.key_password": table(
        "schema_registry", url="https://registry.example", certificate_file="client.pem", key_password="secret"
    ),
    "schema_registry.subjects": table("schema_registry", url="https://registry.example", subjects="record"),
    "schema_registry.write": table("schema_registry", url="https://registry.example", write="confluent"),
    "audit.share": table("audit", share=0.5),
    "audit.on_fault": table("audit", on_fault="park"),
    "plugins.lock": table("plugins", lock="LOCK"),
    "plugins.artefacts": None,  # where plugins come from, not which: `test_pack`
    CHAIN: {"chains": {**BASE["chains"], "b": {}}},
    f"{CHAIN}.protocol": {"chains": {"a": {"protocol": "early-hrmp", "genesis_paras": [{"para_id": 1, "balance": 5}]}}},
    f"{CHAIN}.enactment": chain(enactment="on-inclusion"),
    f"{CHAIN}.balances": chain(balances="unlimited"),
    f"{CHAIN}.hrmp_notifications": chain(hrmp_notifications=True),
    f"{CHAIN}.first_block": chain(first_block=7),
    f"{CHAIN}.state": {"chains": {"a": {"state": "STATE"}}},
    f"{CHAIN}.limits": chain(host_configuration={"preset": "minimal", "hrmp_open_request_ttl": 9}),
    f"{CHAIN}.genesis_paras.para_id": para(para_id=2),
    f"{CHAIN}.genesis_paras.kind": para(kind="parathread"),
    f"{CHAIN}.genesis_paras.balance": para(balance=6),
    f"{CHAIN}.ump_default_weight": chain(ump_default_weight=2),
    f"{CHAIN}.ump_weights": chain(ump_weights={"00": 2}),
    f"{CHAIN}.ump_failing_messages": chain(ump_failing_messages=["00"]),
    f"{CHAIN}.ump_message_weight_max": chain(ump_message_weight_max=2),
    f"{CHAIN}.handlers": chain(handlers=HANDLERS),
    f"{CHAIN}.handlers.name": handlers(name="balances"),
    f"{CHAIN}.handlers.version": handlers(version="0.1.0"),  # the installed one, so it means the same
    f"{CHAIN}.handlers.from_block": handlers(from_block=3),
    f"{CHAIN}.handlers.removed": handlers(removed=True),
    f"{CHAIN}.handlers.config": (
        chain(handlers=[{"name": "balances"}]),
        chain(handlers=[{"name": "balances", "config": {"existential_deposit": 7}}]),
    ),
    f"{CHAIN}.names": chain(names={"2000": "Acala"}),
    f"{CHAIN}.rules.from_block": rules(from_block=12),
    f"{CHAIN}.rules.profile": rules(profile="router/2025-07"),
    f"{CHAIN}.rules.features": rules(profile=None, features=["no_ttl"]),
    "transports": table("transports", mail={"port": 5}),
    "jobs": table("jobs", mail={"port": 5}),
}  # fmt: skip
"""By key of the configuration, tables that change it alone; two if the base does not have what changes."""

PATHS = {
    f"{CHAIN}.limits": "host_configuration.hrmp_open_request_ttl",
    f"{CHAIN}.genesis_paras.para_id": "genesis_paras[1]",
    f"{CHAIN}.genesis_paras.kind": "genesis_paras[1].kind",
    f"{CHAIN}.genesis_paras.balance": "genesis_paras[1].balance",
    f"{CHAIN}.ump_weights": "ump_weights.00",
}
"""How the error names a key, if not by the name of its row."""


def config_of(tables: dict[str, Any], tmp_path: Path) -> Config:
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"first_block": 9, "state": {"valid_paras": [1]}}))
    lock = tmp_path / "plugins.lock"
    if "LOCK" in json.dumps(tables):
        write_lock(lock, load_all(discover())[0])
    text = json.dumps({**BASE, **tables}).replace("STATE", str(state)).replace("LOCK", str(lock))
    return Config.model_validate(json.loads(text))


def starts(key: str, tmp_path: Path) -> tuple[Config, Config]:
    change = CHANGES[key]
    before, after = change if isinstance(change, tuple) else ({}, change)
    return config_of(before, tmp_path), config_of(after, tmp_path)


def found(before: Config, after: Config) -> list[Difference]:
    one, other = (start_of(config, lane_definition(config, "a")) for config in (before, after))
    return differences("a", one, other)


def test_every_key_is_changed_here() -> None:
    assert list(CHANGES) == configuration_keys()


@pytest.mark.parametrize("key", [key for key, change in CHANGES.items() if change is not None])
def test_change_of_a_key_is_found_if_its_effect_says_so(key: str, tmp_path: Path) -> None:
    before, after = starts(key, tmp_path)
    if key.startswith(("chains.", "job.")):
        assert before != after
    changed = found(before, after)
    row = row_of(key)
    assert row is not None
    assert row.compared or not changed
    wanted = row.effect
    if wanted in (Effect.ACCEPTED, Effect.BEGINNING) or key == f"{CHAIN}.protocol":
        path = PATHS.get(key, key.removeprefix(f"{CHAIN}."))
        assert (f"chains.a.{path}", wanted) in [(each.key, each.effect) for each in changed], changed
        assert changed[0].effect is wanted
        with pytest.raises(UserError, match=r"^chains\.a\."):
            refuse_changes("a", changed, NOTHING, 30, rebuild=False)
        with pytest.raises(UserError, match=r"^chains\.a\."):
            refuse_changes("a", changed, NOTHING, 30, rebuild=True)
    elif key == f"{CHAIN}.handlers":
        assert changed == [Difference("chains.a.handlers", Effect.FROM_BLOCK, "none", "a list")]
        refuse_changes("a", changed, NOTHING, 30, rebuild=False)
        refuse_changes("a", changed, NOTHING, 30, rebuild=True)
    else:
        assert changed == []
    kept = {"a": lane_definition(before, "a").encode_rules()}
    now = {"a": lane_definition(after, "a")}
    if wanted is Effect.FROM_BLOCK and key != f"{CHAIN}.handlers.version":
        with pytest.raises(UserError, match=r"(rules|handlers) differ from block (0|10) on, but block 30 is"):
            refuse_changed_past(kept, now, lambda _: 30)
    elif wanted not in (Effect.NEVER, Effect.ACCEPTED):
        refuse_changed_past(kept, now, lambda _: 30)


def test_first_handler_begins_after_executed_blocks(tmp_path: Path) -> None:
    kept = {"a": lane_definition(config_of({}, tmp_path), "a").encode_rules()}
    first, later = (
        {"a": lane_definition(config_of(chain(handlers=[{"name": "remark", **keys}]), tmp_path), "a")}
        for keys in ({}, {"from_block": 31})
    )
    refuse_changed_past(kept, later, lambda _: 30, checkpoint=True)
    with pytest.raises(UserError, match=r"but block 30 is already executed: .* from_block = 31 or more"):
        refuse_changed_past(kept, first, lambda _: 30, checkpoint=True)
    without = found(config_of(chain(handlers=HANDLERS), tmp_path), config_of({}, tmp_path))
    assert without == NO_HANDLERS


def test_limits_written_in_another_way_are_no_change(tmp_path: Path) -> None:
    before = config_of({}, tmp_path)
    after = config_of(chain(host_configuration={"preset": "minimal", "hrmp_open_request_ttl": 0}), tmp_path)
    spelled = start_of(before, lane_definition(before, "a")).meaning["host_configuration"]
    assert spelled["hrmp_open_request_ttl"] != 0
    assert found(before, after)
    assert found(before, config_of(chain(host_configuration=spelled), tmp_path)) == []


def test_state_file_with_other_spaces_is_no_change(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    one.write_text('{"first_block": 9, "state": {"valid_paras": [1]}}')
    other.write_text('{"first_block":9,"state":{"valid_paras":[1]}}')
    before, after = (config_of({"chains": {"a": {"state": str(path)}}}, tmp_path) for path in (one, other))
    assert found(before, after) == []
    other.write_text('{"first_block":9,"state":{"valid_paras":[1, 2]}}')
    (change,) = found(before, after)
    assert (change.key, change.effect) == ("chains.a.state", Effect.BEGINNING)


BALANCE = [Difference("chains.a.genesis_paras[1].balance", Effect.BEGINNING, "5", "6")]
WEIGHT = [Difference("chains.a.ump_default_weight", Effect.ACCEPTED, "1", "2")]
FIRST_HANDLER = [Difference("chains.a.handlers", Effect.FROM_BLOCK, "none", "a list")]
NO_HANDLERS = [Difference("chains.a.handlers", Effect.ACCEPTED, "a list", "none")]
BLOCK_31 = Accepted(blocks={"a": 31})
GENESIS = Accepted(genesis=frozenset({"a"}))


def refused(changed: list[Difference], accepted: Accepted, executed: int | None = 30, **how: Any) -> str | None:
    try:
        refuse_changes("a", changed, accepted, executed, **{"rebuild": False, **how})
    except UserError as error:
        return str(error)
    return None


def test_refusal_names_both_values_and_the_option() -> None:
    line = refused(BALANCE, NOTHING)
    assert line is not None
    assert line.startswith("chains.a.genesis_paras[1].balance: lane a began with 5, found 6: ")
    assert line.endswith("start once with --accept-change a:genesis")
    line = refused([*WEIGHT, *WEIGHT], NOTHING)
    assert line is not None
    assert line.startswith("chains.a.ump_default_weight: lane a began with 1, found 2 (and 1 more): ")
    assert "--accept-change a:31, and block 31 is the first" in line


@pytest.mark.parametrize(
    ("changed", "accepted", "how", "words"),
    [
        (BALANCE, GENESIS, {}, None),
        (BALANCE, GENESIS, {"rebuild": True}, None),
        (BALANCE, BLOCK_31, {}, "a:genesis"),
        (BALANCE, Accepted(genesis=frozenset({"b"})), {}, "a:genesis"),
        (WEIGHT, BLOCK_31, {}, None),
        (WEIGHT, GENESIS, {}, "a:31"),
        (WEIGHT, GENESIS, {"rebuild": True}, None),
        (WEIGHT, Accepted(blocks={"a": 30}), {}, "expected --accept-change a:31"),
        (WEIGHT, Accepted(blocks={"a": 32}), {}, "expected --accept-change a:31"),
        (WEIGHT, Accepted(blocks={"a": 5}), {"rebuild": True}, None),
        (WEIGHT, BLOCK_31, {"unfinished": True}, "the last batch of the checkpoint is not complete"),
        (WEIGHT, NOTHING, {"executed": None}, "records wait in it"),
        ([Difference("chains.a.protocol", Effect.NEVER, "one", "other")], GENESIS, {}, "it cannot change"),
        ([*BALANCE, *WEIGHT], GENESIS, {}, "a:31"),
        ([*BALANCE, *WEIGHT], Accepted(genesis=frozenset({"a"}), blocks={"a": 31}), {}, None),
        ([], NOTHING, {}, None),
        (FIRST_HANDLER, NOTHING, {}, None),
        (FIRST_HANDLER, NOTHING, {"executed": None}, None),
        (FIRST_HANDLER, BLOCK_31, {}, None),
        (FIRST_HANDLER, NOTHING, {"unfinished": True}, "the last batch of the checkpoint is not complete"),
        ([*WEIGHT, *FIRST_HANDLER], NOTHING, {}, "a:31"),
        (NO_HANDLERS, NOTHING, {}, "a:31"),
    ],
)
def test_only_the_accepted_change_passes(
    changed: list[Difference], accepted: Accepted, how: dict[str, Any], words: str | None
) -> None:
    line = refused(changed, accepted, **how)
    assert (line is None) == (words is None), line
    assert words is None or words in str(line)
    assert "\n" not in str(line)


def test_start_is_read_as_it_was_kept(tmp_path: Path) -> None:
    config = config_of({}, tmp_path)
    start = start_of(config, lane_definition(config, "a"))
    keep_start(tmp_path / "lanes", "a", start)
    keep_start(tmp_path / "lanes", "b", LaneStart(1, "00", 1, {}, "", removed=True))
    assert kept_starts(tmp_path / "lanes") == {"a": start, "b": LaneStart(1, "00", 1, {}, "", removed=True)}
    assert kept_starts(tmp_path / "nowhere") == {}
    (tmp_path / "lanes" / "._a.start").write_bytes(b"\x00\x05\x16\x07of another machine")
    assert list(kept_starts(tmp_path / "lanes")) == ["a", "b"]


def test_accepted_changes_are_kept_with_their_blocks(tmp_path: Path) -> None:
    config = config_of({}, tmp_path)
    start = start_of(config, lane_definition(config, "a"))
    changes = (
        AcceptedChange(31, "chains.a.ump_default_weight", "1", "2"),
        AcceptedChange(50, "chains.a.enactment", "", ""),
    )
    keep_start(tmp_path / "lanes", "a", replace(start, changes=changes))
    assert kept_starts(tmp_path / "lanes")["a"].changes == changes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 1}', "is damaged"),
        (
            '{"version": 1}',
            "it was written before the first release, .*: remove .*/checkpoint and .*, and start with --rebuild",
        ),
        ('{"version": 2}', "it was written before the first release"),
        (
            json.dumps({"format": START_VERSION + 1}),
            f"expected version {START_VERSION}, found {START_VERSION + 1}: a newer version",
        ),
    ],
)
def test_damaged_start_is_refused_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.start").write_text(text)
    with pytest.raises(UserError, match=words) as error:
        kept_starts(tmp_path)
    assert "\n" not in str(error.value)


def test_a_new_encoding_in_the_store_has_a_new_version_of_the_start() -> None:
    """By that number alone an earlier version refuses to start on the folder, instead of parking each lane with its first batch."""
    assert START_VERSION == 1
    encodings = (
        store.HEAD,
        store.ENTRY,
        processor.OWN_PAGE,
        core_lane.OWN_PAGE,
        RULES,
        parked.PARKED,
        state.PAGE,
    )
    assert [each.version for each in encodings] == [1, 1, 1, 1, 1, 0x81, 0x81]


def test_pages_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    config = config_of({}, tmp_path)
    start = start_of(config, lane_definition(config, "a"))
    refuse_newer_pages({"a": start, "b": start}, {"a": replace(start, encoding_version=start.encoding_version + 1)})
    newer = replace(start, encoding_version=start.encoding_version + 1)
    with pytest.raises(
        UserError, match=r"^lane a: its pages have version \d+, and protocol router writes version \d+: a newer version"
    ):
        refuse_newer_pages({"a": newer}, {"a": start})


def test_start_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.start").mkdir()
    with pytest.raises(UserError, match=r"a\.start: Is a directory$"):
        kept_starts(tmp_path)


def test_accepted_changes_are_read() -> None:
    accepted = read_accepted(["a:genesis", "b.c-d:17", "b.c-d:17", "e:removed"])
    assert accepted == Accepted(frozenset({"a"}), frozenset({"e"}), {"b.c-d": 17})
    assert accepted.options() == {"a:genesis": "a", "e:removed": "e", "b.c-d:17": "b.c-d"}


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":genesis", "a:Genesis", "a:0", "a:-1", "a:4294967296", "a:1.5", "a:²"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"^--accept-change: expected LANE:genesis, LANE:removed or LANE:BLOCK"):
        read_accepted([text])


def test_lane_has_one_block() -> None:
    with pytest.raises(UserError, match="expected one block for lane a, found 5 and 6"):
        read_accepted(["a:5", "a:6"])
