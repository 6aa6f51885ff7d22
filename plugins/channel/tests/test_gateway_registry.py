# SPDX-License-Identifier: Apache-2.0
"""The registry of peers: what it says, one line for each problem, and changes of the file."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from validator_channel.command import app
from validator_channel.crypto import NO_PSK
from validator_channel.gateway.records import feed_keys
from validator_channel.gateway.registry import (
    FIELD_OF_KEY,
    KEYS,
    Grant,
    PeerPolicy,
    RegistryFile,
    Unauthorised,
    changes,
    check_authorised,
    read_registry,
)
from validator_channel.tables import ConfigError

PEER, GATEWAY = "0123456789abcdef0011223344556677", "0123456789abcdeffedcba9876543210"
GOOD = f"""
[peers.acala]
peer = "{PEER}"
gateway = "{GATEWAY}"
lanes = {{ polkadot = [2000, 2004], kusama = "all" }}
submit = ["candidates", "channel-requests"]
watch = ["verdicts", "headroom"]
pins = {{ current = "{"ab" * 32}", next = "{"cd" * 32}" }}
psk_file = "acala.psk"
records_per_s = 2.5
burst = 7
sessions_max = 2
"""


def write(folder: Path, text: str = GOOD) -> Path:
    (folder / "acala.psk").write_text("11" * 32 + "\n")
    (folder / "acala.psk").chmod(0o600)
    path = folder / "peers.toml"
    replacement = folder / "peers.new"
    replacement.write_text(text)
    replacement.replace(path)
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_registry(path)
    return [each.removeprefix(f"{path}: ") for each in caught.value.problems]


def test_everything_in_its_place(tmp_path: Path) -> None:
    ((channel, policy),) = read_registry(write(tmp_path)).items()
    assert channel == policy.channel == 0x0123456789ABCDEF
    assert (policy.name, policy.peer, policy.gateway) == ("acala", int(PEER, 16), int(GATEWAY, 16))
    assert policy.lanes == {"polkadot": frozenset({2000, 2004}), "kusama": None}
    assert (policy.submit, policy.watch, policy.grants) == (
        ("candidates", "channel-requests"),
        ("verdicts", "headroom"),
        frozenset(),
    )
    assert policy.pins == {b"\xab" * 32, b"\xcd" * 32}
    assert policy.psk == b"\x11" * 32
    assert (policy.records_per_s, policy.burst, policy.sessions_max) == (2.5, 7, 2)
    assert policy.needs_uri
    assert policy.is_enabled
    peer = policy.for_transport()
    assert (peer.peering.psk, peer.peering.is_allowed, peer.pins, peer.sessions_max) == (
        policy.psk,
        True,
        policy.pins,
        2,
    )
    assert [topic for topic in range(20) if peer.topics(topic)] == [1, 2, 3, 6]
    assert "1111" not in repr(policy)


def test_defaults(tmp_path: Path) -> None:
    text = f'[peers.a]\npeer = "{PEER}"\ngateway = "{GATEWAY}"\nlanes = {{ polkadot = [] }}\n'
    (policy,) = read_registry(write(tmp_path, text)).values()
    assert (policy.submit, policy.watch, policy.pins, policy.psk) == ((), (), frozenset(), NO_PSK)
    assert (policy.records_per_s, policy.burst, policy.sessions_max) == (100.0, 200, 4)


BAD = [
    ('peer = "X"', "peer: expected 32 lower-case hex digits, found 'X'"),
    (f'peer = "{PEER.upper()}"', f"peer: expected 32 lower-case hex digits, found '{PEER.upper()}'"),
    (
        f'peer = "{GATEWAY}"',
        f"gateway: expected another peer ID than {GATEWAY} with the same first 16 digits, found '{GATEWAY}'",
    ),
    (f'peer = "{"ff" * 16}"', f"gateway: expected another peer ID than {'ff' * 16} with the same first 16 digits"),
    ("peer = 5", "peer: expected 32 lower-case hex digits, found 5"),
    ("lanes = {}", "lanes: expected a table of paras by lane, with at least one lane, found {}"),
    (
        "lanes = { polkadot = [-1] }",
        "lanes.polkadot: expected 'all' or at most 4096 integers from 0 to 4294967295, found [-1]",
    ),
    ("lanes = { polkadot = [true] }", "lanes.polkadot: expected 'all' or"),
    ('lanes = { polkadot = "every" }', "lanes.polkadot: expected 'all' or"),
    (
        'submit = ["candidate"]',
        "submit: expected a list of candidates, channel-requests, blocks, downward-messages, each at most once",
    ),
    ('submit = ["candidates", "candidates"]', "submit: expected a list of"),
    ('submit = "candidates"', "submit: expected a list of"),
    ('submit = ["blocks"]', "submit: expected blocks only with relay-chain in grants, found ['blocks']"),
    ('watch = ["markers"]', "watch: expected a list of verdicts, dispatches"),
    ('grants = ["root"]', "grants: expected a list of relay-chain, root-requests"),
    ('pins = { next = "00" }', "pins: expected a table with current, and next if the key is about to change"),
    ('pins = { current = "00" }', "pins.current: expected 64 lower-case hex digits, found '00'"),
    ("needs_uri = false\npins = {}", "needs_uri: expected true, or pins, found False"),
    ("needs_uri = 1", "needs_uri: expected true or false, found 1"),
    ("records_per_s = 0", "records_per_s: expected a number above 0, at most 1000000, found 0"),
    ("records_per_s = nan", "records_per_s: expected a number above 0"),
    ("burst = 1.5", "burst: expected an integer from 1 to 1000000, found 1.5"),
    ("sessions_max = 1025", "sessions_max: expected an integer from 1 to 1024, found 1025"),
    ("enabled = 0", "enabled: expected true or false, found 0"),
    ("psk_file = 1", "psk_file: expected a path, found 1"),
    ("recods_per_s = 1", "recods_per_s: no such key, expected one of peer, gateway, "),
]


@pytest.mark.parametrize(("line", "text"), BAD)
def test_each_problem_is_one_line(tmp_path: Path, line: str, text: str) -> None:
    keys = {part.split(" = ")[0] for part in line.splitlines()}
    kept = [each for each in GOOD.splitlines() if each.split(" = ")[0] not in keys]
    (problem,) = problems(write(tmp_path, "\n".join([*kept, line])))
    assert problem.startswith(f"peers.acala.{text}")
    assert "\n" not in problem


def test_all_problems_of_all_peers_are_reported_at_once(tmp_path: Path) -> None:
    text = (
        GOOD
        + "[peers.B]\n[peers.copy]\n"
        + GOOD.replace("[peers.acala]", "").replace("burst = 7", "burst = 0")
        + "\n[others]\n"
    )
    found = problems(write(tmp_path, text))
    assert found == [
        "others: no such key, expected tables [peers.NAME]",
        "peers.B: expected a name of 1 to 64 of a-z 0-9 . _ -",
        "peers.B.peer: expected 32 lower-case hex digits, found nothing",
        "peers.B.gateway: expected 32 lower-case hex digits, found nothing",
        "peers.B.lanes: expected a table of paras by lane, with at least one lane, found nothing",
        "peers.copy.burst: expected an integer from 1 to 1000000, found 0",
    ]


def test_channel_belongs_to_one_peer(tmp_path: Path) -> None:
    text = GOOD + GOOD.replace("[peers.acala]", "[peers.copy]")
    assert problems(write(tmp_path, text)) == [
        "peers.acala, peers.copy: expected a channel for each, found 0123456789abcdef for all of them"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[peers", "expected TOML: "),
        ("peers = 1", "peers: expected tables [peers.NAME]"),
        ("[peers]\na = 1", "peers: expected tables"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(write(tmp_path, text))[0].startswith(problem)
    (tmp_path / "peers.toml").write_bytes(b"\xff\xfe")
    assert problems(tmp_path / "peers.toml")[0].startswith("expected TOML: ")
    assert problems(tmp_path / "nowhere.toml") == ["No such file or directory"]


def test_pre_shared_key_is_read_only_from_a_file_of_its_owner(tmp_path: Path) -> None:
    path = write(tmp_path)
    key = tmp_path / "acala.psk"
    key.chmod(0o640)
    (found,) = problems(path)
    assert found.startswith(
        f"peers.acala.psk_file: {key}: expected a file that only its owner may read (mode 0600), found mode 0640"
    )
    key.chmod(0o600)
    for content in ("", "11" * 31, "11" * 33, "xy" * 32):
        key.write_text(content)
        assert problems(path) == [f"peers.acala.psk_file: {key}: expected 64 hex digits"]
    key.unlink()
    assert problems(path) == [f"peers.acala.psk_file: {key}: No such file or directory"]


def test_changed_file_is_read_and_a_broken_one_leaves_the_peers(tmp_path: Path) -> None:
    path = write(tmp_path)
    file = RegistryFile(path)
    assert not file.poll()
    write(tmp_path, GOOD.replace("burst = 7", "burst = 8"))
    assert file.poll()
    assert [policy.burst for policy in file.peers.values()] == [8]
    write(tmp_path, GOOD.replace("burst = 7", "burst = 0"))
    assert file.poll()
    assert not file.poll()
    assert [policy.burst for policy in file.peers.values()] == [8]
    assert file.problems == (f"{path}: peers.acala.burst: expected an integer from 1 to 1000000, found 0",)
    path.unlink()
    assert file.poll()
    assert file.problems == (f"{path}: No such file or directory",)
    assert len(file.peers) == 1
    write(tmp_path, "")
    assert file.poll()
    assert (dict(file.peers), file.problems) == ({}, ())


def test_changed_pre_shared_key_is_read_though_the_registry_has_not_changed(tmp_path: Path) -> None:
    key = tmp_path / "acala.psk"
    file = RegistryFile(write(tmp_path))
    assert not file.poll()
    key.write_text("22" * 32)
    assert file.poll()
    assert [policy.psk for policy in file.peers.values()] == [b"\x22" * 32]
    key.chmod(0o640)
    assert file.poll()
    assert not file.poll()
    assert "expected a file that only its owner may read" in file.problems[0]
    assert [policy.psk for policy in file.peers.values()] == [b"\x22" * 32]
    key.unlink()
    assert file.poll()
    key.write_text("33" * 32)
    key.chmod(0o600)
    assert file.poll()
    assert (file.problems, [policy.psk for policy in file.peers.values()]) == ((), [b"\x33" * 32])


def test_changes_name_each_peer_and_what_has_changed_but_no_secret() -> None:
    acala = PeerPolicy(name="acala", peer=1, gateway=2, lanes={"polkadot": None})
    gone = replace(acala, name="gone", peer=1 << 64, gateway=2 << 64)
    new = replace(gone, name="new", peer=3 << 64)
    changed = replace(acala, is_enabled=False, sessions_max=5, psk=b"\x11" * 32, pins=frozenset({bytes(32)}), lanes={})
    assert changes({0: acala, 1: gone}, {0: changed, 3: new}) == [
        "acala: pins, psk_file, lanes, sessions_max 4 -> 5, enabled true -> false",
        "gone: removed",
        "new: added",
    ]
    assert changes({0: acala}, {0: replace(acala, name="karura")}) == ["karura: was acala"]
    assert changes({0: acala}, {0: acala}) == []


def test_each_field_of_a_peer_but_its_name_is_a_key() -> None:
    assert {FIELD_OF_KEY.get(key, key) for key in KEYS} == {each.name for each in fields(PeerPolicy)} - {"name"}


def test_command_shows_the_registry_without_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    result = CliRunner().invoke(app, ["registry", str(path), "--json"])
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert (shown["name"], shown["lanes"], shown["psk"]) == ("acala", {"polkadot": [2000, 2004], "kusama": "all"}, True)
    assert "1111" not in result.stdout
    assert "acala" in CliRunner().invoke(app, ["registry", str(path)]).stdout
    monkeypatch.chdir(tmp_path)
    write(tmp_path, GOOD.replace("burst = 7", "burst = 0"))
    result = CliRunner().invoke(app, ["registry"])
    assert result.exit_code == 2
    assert (
        result.stderr
        == "validator-channel: peers.toml: peers.acala.burst: expected an integer from 1 to 1000000, found 0\n"
    )


# --- authorisation ---


def policy(tmp_path: Path, **changes: str) -> Any:
    text = "\n".join(each for each in GOOD.splitlines() if each.split(" = ")[0] not in changes)
    return next(
        iter(
            read_registry(
                write(tmp_path, "\n".join([text, *(f"{key} = {value}" for key, value in changes.items())]))
            ).values()
        )
    )


def test_grants_allow_what_a_relay_chain_does(tmp_path: Path) -> None:
    allowed = policy(
        tmp_path,
        submit='["blocks", "downward-messages", "channel-requests"]',
        grants='["relay-chain", "root-requests"]',
    )
    assert allowed.grants == {Grant.RELAY_CHAIN, Grant.ROOT_REQUESTS}
    check_authorised(allowed, "blocks", {"lane": "polkadot"})
    check_authorised(allowed, "downward-messages", {"lane": "polkadot", "para_id": 2000})
    check_authorised(allowed, "downward-messages", {"lane": "kusama", "para_id": 9})
    check_authorised(allowed, "channel-requests", {"lane": "polkadot", "kind": "force_open_channel", "sender": 1})
    for topic, record, text in [
        ("candidates", {"lane": "polkadot", "para_id": 2000}, "candidates: not granted to this peer"),
        ("blocks", {"lane": "westend"}, "blocks: lane: expected one of this peer's lanes, found 'westend'"),
        ("blocks", {}, "blocks: lane: expected one of this peer's lanes, found None"),
        (
            "downward-messages",
            {"lane": "polkadot", "para_id": 9},
            "downward-messages: para_id: expected one of this peer's paras in polkadot",
        ),
        (
            "channel-requests",
            {"lane": "polkadot", "kind": "close_channel", "origin": 9},
            "channel-requests: origin: expected one of",
        ),
    ]:
        with pytest.raises(Unauthorised) as caught:
            check_authorised(allowed, topic, record)
        assert str(caught.value).startswith(text)


def test_disabled_peer_may_do_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unauthorised, match="not granted"):
        check_authorised(policy(tmp_path, enabled="false"), "candidates", {"lane": "polkadot", "para_id": 2000})


def test_feeds_hold_own_paras_and_records_of_lanes(tmp_path: Path) -> None:
    found = policy(tmp_path)
    assert feed_keys(found, "verdicts") == {("polkadot", 2000), ("polkadot", 2004), ("kusama", None)}
    assert feed_keys(found, "receipts") == {("polkadot", None), ("kusama", None)}
    assert feed_keys(found, "ingress-events") == feed_keys(found, "verdicts")
