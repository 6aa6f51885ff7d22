# SPDX-License-Identifier: Apache-2.0
"""The command: its lines, its JSON, its exit codes, and one line for every malformed file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from channel_world import CHANNEL, JOIN_TEXT, KEYS, PEERS, QUICK, SAMPLES, World
from typer.testing import CliRunner
from validator_channel import __version__, session
from validator_channel.command import app
from validator_channel.wire import Kind, Role

OPEN = {"at": 0, "do": {"op": "open"}, "expect": {"tx": [], "events": [], "state": "HANDSHAKE"}}
SECURED = {"at": 0.0, "do": {"op": "secured"}, "expect": {}}


def document(*steps: dict[str, Any]) -> dict[str, Any]:
    names = [role.name.lower() for role in Role]
    return {
        "format": "channel-vectors/1",
        "traces": {
            "channel": f"{CHANNEL:016x}",
            "session": 5,
            "peers": {name: f"{peer:032x}" for name, peer in zip(names, PEERS, strict=True)},
            "keys": {name: key.hex() for name, key in zip(names, KEYS, strict=True)},
            "cases": [{"id": "X", "title": "t", "role": "listener", "config": dict(QUICK), "steps": list(steps)}],
        },
    }


def run(tmp_path: Path, content: Any, *options: str) -> tuple[int, str, str]:
    path = tmp_path / "file.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    result = CliRunner().invoke(app, ["replay", str(path), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def test_lines_and_exit_codes(tmp_path: Path) -> None:
    good = document(OPEN)
    assert run(tmp_path, good) == (0, "PASS X t\n1 passed, 0 failed\n", "")
    good["tls_cases"] = [{"id": "TLS01"}]
    good["identifiers"] = {"peer_id": [{"peer": "00" * 16, "local": "11" * 8}]}
    code, out, _ = run(tmp_path, good)
    assert code == 1
    assert out.splitlines() == [
        'FAIL identifiers.peer_id[0]: local: expected "1111111111111111", got "0000000000000000"',
        "PASS X t",
        "SKIP TLS01: needs TLS connections: see tests/test_net_listener_cases.py and tests/test_net_attack_cases.py",
        "1 passed, 1 failed, 1 skipped",
    ]


def test_json_ignores_expectations(tmp_path: Path) -> None:
    join = World(Role.LISTENER).frame(Kind.JOIN_SESSION, 0, 0, JOIN_TEXT)
    receive = {"at": 0.5, "do": {"op": "receive", "bytes_hex": join.hex()}, "expect": 7}
    send = {"at": 0.5, "do": {"op": "send", "args": {"topic": 0, "payload_hex": "00"}}}
    lost = {"at": 1, "do": {"op": "connection_lost"}}
    code, out, _ = run(tmp_path, document(OPEN, SECURED, receive, send, lost), "--json")
    assert code == 0
    (case,) = json.loads(out)["cases"]
    steps = case["steps"]
    assert case["id"] == "X"
    assert [step["state"] for step in steps] == ["HANDSHAKE", "SETUP", "SETUP", "SETUP", "OFFLINE"]
    assert [step["raises"] for step in steps] == [None, None, None, "WRONG_STATE", None]
    assert [step["closed"] for step in steps] == [False] * 4 + [True]
    assert [step["clean"] for step in steps] == [None] * 4 + [False]
    assert steps[4]["events"] == [{"event": "SessionError", "category": "delivery", "code": "TRANSPORT_LOST"}]
    assert len(bytes.fromhex(steps[2]["wire_hex"])) > 200
    assert run(tmp_path, {"format": "channel-vectors/1"}, "--json")[1] == '{"cases": []}\n'


def test_every_operation_is_played(tmp_path: Path) -> None:
    operations = [
        {"op": "timer"},
        {"op": "register_topic", "args": {"topic": 7, "name": "n"}},
        {"op": "deregister_topic", "args": {"topic": 7}},
        {"op": "ack", "args": {"topic": 0, "index": 2}},
        {"op": "consumed"},
        {"op": "consumed", "args": {"count": 2}},
        {"op": "set_next_index", "args": {"topic": 0, "index": 3}},
        {"op": "set_writable", "args": {"writable": False}},
        {"op": "leave"},
    ]
    steps = [{"at": 0.0, "do": operation} for operation in operations]
    code, out, _ = run(tmp_path, document(OPEN, SECURED, *steps), "--json")
    assert code == 0
    raised = [step["raises"] for step in json.loads(out)["cases"][0]["steps"]]
    assert raised == [None, None, None, *["WRONG_STATE"] * 3, *[None] * 5]


BAD_DOCUMENTS = [
    (b"", "file.json:1:1: not JSON"),
    (b"\xff", "file.json: not UTF-8 at byte 0"),
    (b"NaN", "file.json: expected an object, found NaN"),
    (b"1" * 10_000, "file.json: Exceeds the limit"),
    (b"[" * 100_000, "file.json: nested too deeply"),
    (b"[]", "file.json: expected an object, found []"),
    ({"format": "other/1"}, 'file.json.format: expected one of channel-vectors/1, found "other/1"'),
    ({"traces": {}}, "file.json.traces: key 'peers' is missing"),
]


BAD_STEPS = [
    ({"at": -1}, "steps[1].at: expected seconds from 0"),
    ({"at": "0"}, "steps[1].at: expected seconds"),
    ({"do": {}}, "steps[1].do: key 'op' is missing"),
    ({"do": {"op": "fly"}}, "steps[1].do.op: expected one of open, secured"),
    ({"do": {"op": "receive"}}, "steps[1].do: key 'bytes_hex' is missing"),
    ({"do": {"op": "receive", "bytes_hex": "0g"}}, "bytes_hex: expected bytes in lower-case hex"),
    ({"do": {"op": "receive", "bytes_hex": "00 00"}}, "bytes_hex: expected bytes in lower-case hex"),
    ({"do": {"op": "send", "args": {"topic": True, "payload_hex": ""}}}, "args.topic: expected an integer"),
    ({"do": {"op": "send"}}, "args: key 'topic' is missing"),
    ({"do": {"op": "register_topic", "args": {"topic": 1, "name": 2}}}, "args.name: expected a string"),
]


BAD_VECTORS = [
    (
        {"aead": {"channel": {"sealed": [{"example_json": "\ud800"}]}}},
        "sealed[0].example_json: expected a string without unpaired surrogates",
    ),
    (
        {"replay_window": {"vectors": [{"size": 2**53 - 1, "sequence": []}]}},
        "vectors[0].size: expected an integer from 1 to 1048576",
    ),
]


@pytest.mark.parametrize(("content", "why"), BAD_VECTORS)
def test_malformed_vector_is_one_line(tmp_path: Path, content: Any, why: str) -> None:
    code, out, err = run(tmp_path, {"format": "channel-vectors/1", **content})
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert why in err


@pytest.mark.parametrize(("fails_at", "code"), [(1.5, 0), (1.500001, 1)])
def test_seconds_of_a_schedule_are_compared_up_to_rounding(tmp_path: Path, fails_at: float, code: int) -> None:
    """0.1 + 0.2 is not 0.3 in binary."""
    settings = {"ack_timeout": 0.1, "backoff": 2, "max_ack_timeout": 30, "max_retries": 3}
    schedule = {**settings, "sends_at": [0, 0.1, 0.3, 0.7], "fails_at": fails_at}
    document = {"format": "channel-vectors/1", "retransmission": {"vectors": [schedule]}}
    assert run(tmp_path, document)[0] == code


@pytest.mark.parametrize(
    ("content", "why"),
    [*BAD_DOCUMENTS, *((document(OPEN, {**SECURED, **change}), why) for change, why in BAD_STEPS)],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_malformed_file_is_one_line(tmp_path: Path, content: Any, why: str, options: tuple[str, ...]) -> None:
    code, out, err = run(tmp_path, content, *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert why in err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("window", 0),
        ("window", 1025),
        ("window", True),
        ("max_frame", 1023),
        ("ack_timeout", 0),
        ("widow", 8),
        ("backoff", 0.5),
    ],
)
def test_bad_setting_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    bad = document(OPEN)
    bad["traces"]["cases"][0]["config"][key] = value
    code, _, err = run(tmp_path, bad)
    assert code == 2
    assert "cases[0].config" in err


def test_expectations_are_checked_before_anything_is_printed(tmp_path: Path) -> None:
    bad = document(OPEN, {**SECURED, "expect": {"tx": [{"kind": "JOIN_SESSION"}]}})
    assert run(tmp_path, bad, "--json")[0] == 0
    code, out, err = run(tmp_path, bad)
    assert (code, out) == (2, "")
    assert "expect.tx[0]: key 'topic' is missing" in err


def test_descriptions_of_bad_frames_may_hold_anything(tmp_path: Path) -> None:
    frame = b'{"kind":"\\ud800","kind":NaN,"ctr":1e400}'
    steps = (
        json.dumps(document({**OPEN, "do": {"op": "open", "frame": 0}}))
        .encode()
        .replace(b'"frame": 0', b'"frame": ' + frame)
    )
    assert run(tmp_path, steps)[0] == 0
    odd = document({**OPEN, "at": float("nan")})
    assert "at: expected seconds" in run(tmp_path, odd)[2]
    odd = document(OPEN, {"at": 0, "do": {"op": "leave", "args": {"reason": "\ud800"}}})
    odd["traces"]["cases"][0]["id"] = "\ud800\n"
    code, out, _ = run(tmp_path, odd, "--json")
    assert (code, json.loads(out)["cases"][0]["steps"][1]["raises"]) == (0, "BAD_PAYLOAD")
    odd["traces"]["cases"][0]["steps"][1]["expect"] = {"raises": "BAD_PAYLOAD"}
    assert run(tmp_path, odd)[1].splitlines()[0] == "PASS \\ud800\\n t"


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        result = CliRunner().invoke(app, ["replay", str(path)])
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1


def test_command_imports_nothing_heavy() -> None:
    heavy = {"asyncio", "confluent_kafka", "pyspark", "ssl", "validator"}
    program = "import sys, validator_channel.command; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())


@pytest.mark.skipif(not SAMPLES.exists(), reason="the checkout has no sibling ../shared/traces")
def test_samples_pass() -> None:
    result = CliRunner().invoke(app, ["replay", str(SAMPLES)])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "61 passed, 0 failed, 50 skipped"


def test_version_names_the_form() -> None:
    """The modules decide, so an import of the other form would show here."""
    result = CliRunner().invoke(app, ["--version"])
    form = "pure Python" if str(session.__file__).endswith(".py") else "compiled"
    assert (result.exit_code, result.stdout) == (0, f"validator-channel {__version__} ({form})\n")
