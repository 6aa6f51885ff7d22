# SPDX-License-Identifier: Apache-2.0
"""`validator-channel submit` and `watch` as a person and a script meet them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gateway_world import GatewayWorld, candidate, until, verdict
from validator_channel.client import ConfigError, load_config
from validator_channel.wire import format_id

COMMAND = (sys.executable, "-c", "from validator_channel.command import main; main()")


class Ended(NamedTuple):
    """The end of a command."""

    code: int
    out: list[str]
    err: list[str]

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.out]


@pytest.fixture
def world(tmp_path: Path) -> GatewayWorld:
    made = GatewayWorld(tmp_path)
    made.add_peer("alice", 2000, watch=["verdicts"])
    return made


def configure(world: GatewayWorld, **changes: Any) -> Path:
    """Write alice's configuration, with paths relative to it."""
    entry = world.peers["alice"]
    assert world.gateway is not None
    values = {
        "gateways": [f"127.0.0.1:{world.gateway.port}"],
        "peer": format_id(entry.peer),
        "gateway": format_id(entry.gateway),
        "certificate": "pki/alice.crt",
        "key": "pki/alice.key",
        "ca": "pki/ca.crt",
        **changes,
    }
    path = world.folder / "channel.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    return path


async def command(*arguments: str, stdin: bytes = b"") -> Ended:
    process = await start(*arguments)
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode().splitlines(), err.decode().splitlines())


async def start(*arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdin=pipe, stdout=pipe, stderr=pipe)


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


async def test_submit_prints_what_became_of_each_line(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        config = configure(world)
        file = world.folder / "candidates.jsonl"
        file.write_bytes(lines(candidate(1), candidate(2)) + b"\n" + lines(candidate(3)))
        ended = await command("submit", str(file), f"--config={config}")
        assert (ended.code, ended.err) == (0, [])
        assert [line.partition(" as ")[0] for line in ended.out] == [
            f"line {number}: acknowledged" for number in (1, 2, 4)
        ]
        ended = await command(
            "submit", "-", f"--config={config}", "--json", stdin=lines(candidate(4, para=1), candidate(5))
        )
        assert ended.code == 1
        refused, accepted = sorted(ended.json, key=lambda each: each["line"])
        assert refused == {
            "line": 1,
            "ok": False,
            "error": "candidates: para_id: expected one of this peer's paras in polkadot, found 1",
        }
        assert (accepted["line"], accepted["ok"], accepted["attempts"]) == (2, True, 1)
        blocks = [memory.forms.decode("candidates", record.value)["block"] for record in memory.enqueued]
        assert blocks == [1, 2, 3, 5]


async def test_records_without_a_gateway_end_in_a_line_for_each_attempt_and_two_more(world: GatewayWorld) -> None:
    async with world.serving():
        options = (f"--config={configure(world)}", "--gateway-address=127.0.0.1:1", "--attempts=2")
        ended = await command("submit", "-", *options, stdin=lines(*map(candidate, range(1, 40))))
        assert (ended.code, ended.out) == (3, [])
        why = "127.0.0.1:1: TRANSPORT_LOST: nothing listens there"
        assert ended.err[0].startswith(f"validator-channel: no session with {why}; attempt 2 of 2 in 0.")
        assert ended.err[1:] == [
            f"validator-channel: {why}",
            "validator-channel: 39 lines are not acknowledged: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...",
        ]
        ended = await command("submit", "-", *options[:2], "--attempts=1", stdin=lines(candidate(1)))
        assert ended.err == [f"validator-channel: {why}", "validator-channel: 1 line is not acknowledged: 1"]


@pytest.mark.parametrize("name", ["candidates.jsonl", "-"])
async def test_submit_gives_up_after_its_timeout(world: GatewayWorld, name: str) -> None:
    """The records of a file end as those of standard input, although a time-out is an error of the system, too."""
    async with world.serving():
        sent = lines(candidate(1), candidate(2))
        (world.folder / "candidates.jsonl").write_bytes(sent)
        path = name if name == "-" else str(world.folder / name)
        options = (f"--config={configure(world)}", "--gateway-address=127.0.0.1:1", "--timeout=0.2")
        ended = await command("submit", path, *options, stdin=sent)
        assert (ended.code, ended.out) == (3, [])
        assert "no answer in time" in ended.err[-2]
        assert ended.err[-1] == "validator-channel: 2 lines are not acknowledged: 1, 2"


async def test_missing_certificate_is_reported_at_once(world: GatewayWorld) -> None:
    async with world.serving():
        for arguments in (("watch", "verdicts"), ("submit", "-")):
            options = (f"--config={configure(world)}", "--certificate=nope.crt")
            ended = await command(*arguments, *options, stdin=lines(candidate(1)))
            assert (ended.code, ended.out) == (2, []), ended
            assert len(ended.err) == 1, ended
            assert "nope.crt: No such file or directory" in ended.err[0]


async def test_interrupted_submit_says_what_is_not_acknowledged(world: GatewayWorld) -> None:
    async with world.serving():
        file = world.folder / "candidates.jsonl"
        file.write_bytes(lines(candidate(1)))
        process = await start("submit", str(file), f"--config={configure(world)}", "--gateway-address=127.0.0.1:1")
        assert process.stderr is not None
        await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert process.returncode == 130
        assert err.decode().splitlines()[-1] == "validator-channel: 1 line is not acknowledged: 1"


async def test_bad_line_of_a_file_sends_nothing_and_of_a_stream_what_came_before(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        config = configure(world)
        file = world.folder / "bad.jsonl"
        file.write_bytes(lines(candidate(1)) + b'{"a":1,"a":2}\n')
        ended = await command("submit", str(file), f"--config={config}")
        assert (ended.code, ended.out) == (2, [])
        assert ended.err == [f"validator-channel: {file}, line 2: a member name occurs twice"]
        assert memory.enqueued == []
        ended = await command("submit", "-", f"--config={config}", stdin=file.read_bytes())
        assert (ended.code, ended.err) == (
            2,
            ["validator-channel: standard input, line 2: a member name occurs twice"],
        )
        await until(lambda: len(memory.enqueued) == 1)


async def test_watch_prints_records_and_continues(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        config = configure(world)
        for block in (1, 2, 3, 4):
            memory.emit("verdicts", verdict(block))
        ended = await command("watch", "verdicts", f"--config={config}", "--count=2", "--json")
        assert (ended.code, ended.err) == (0, [])
        assert [each["record"]["block"] for each in ended.json] == [1, 2]
        after = ",".join(f"{partition}:{offset}" for partition, offset in ended.json[-1]["after"].items())
        ended = await command("watch", "verdicts", f"--config={config}", "--count=2", f"--after={after}")
        assert [line.split("  ")[0] for line in ended.out] == ["0:2", "0:3"]
        assert "block=3" in ended.out[0]


async def test_watch_follows_until_interrupted(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        process = await start("watch", "verdicts", f"--config={configure(world)}", "--json", "--after=start")
        assert process.stdout is not None
        for block in (1, 2):
            memory.emit("verdicts", verdict(block))
            assert json.loads(await process.stdout.readline())["record"]["block"] == block
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert (process.returncode, err) == (130, b"")


async def test_wrong_calls_are_one_line_each(world: GatewayWorld) -> None:
    async with world.serving():
        config = f"--config={configure(world)}"
        for arguments, code, text in [
            (["submit", "-", "--topic=verdicts", config], 2, "topic: expected one of candidates, "),
            (["submit", "nowhere.jsonl", config], 2, "nowhere.jsonl: No such file or directory"),
            (["submit", "-", "--config=nowhere.toml"], 2, "nowhere.toml: No such file or directory"),
            (["submit", "-", config, "--peer=1"], 2, "expected 32 lower-case hex digits"),
            (["watch", "everything", config], 2, "topic: expected one of verdicts, "),
            (
                ["watch", "verdicts", config, "--after=soon"],
                2,
                "--after: expected start, end, OFFSET or PARTITION:OFFSET",
            ),
            (["watch", "dispatches", config], 1, "watch: 'dispatches' is not granted to this peer"),
            (["watch", "verdicts", config, "--timeout=0.2"], 3, "no answer in time"),
            (
                ["watch", "verdicts", config, "--gateway-address=127.0.0.1:1", "--attempts=1"],
                3,
                "127.0.0.1:1: TRANSPORT_LOST",
            ),
        ]:
            ended = await command(*arguments)
            assert (ended.code, ended.out, len(ended.err)) == (code, [], 1), (arguments, ended)
            assert ended.err[0].startswith("validator-channel: ")
            assert text in ended.err[0]


async def test_lines_say_why_there_is_no_session_until_there_is_one(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        assert world.gateway is not None
        config = configure(world, gateways=["127.0.0.1:1", f"127.0.0.1:{world.gateway.port}"])
        memory.emit("verdicts", verdict(1))
        ended = await command("watch", "verdicts", f"--config={config}", "--count=1")
        assert (ended.code, len(ended.out)) == (0, 1)
        failed, connected = ended.err
        assert failed.startswith(
            "validator-channel: no session with 127.0.0.1:1: TRANSPORT_LOST: nothing listens there; attempt 2 of 11 in 0."
        )
        assert connected == f"validator-channel: connected to 127.0.0.1:{world.gateway.port}"


async def test_terminal_shows_one_line_that_goes_away(world: GatewayWorld) -> None:
    async with world.serving() as memory:
        assert world.gateway is not None
        config = configure(world, gateways=["127.0.0.1:1", f"127.0.0.1:{world.gateway.port}"])
        memory.emit("verdicts", verdict(1))
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (24, 200))
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "watch", "verdicts", f"--config={config}", "--count=1", "--json",
            stdout=asyncio.subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
        )  # fmt: skip
        os.close(theirs)
        seen = asyncio.get_running_loop().run_in_executor(None, read_terminal, ours)
        out, _ = await process.communicate()
        text = await seen
        assert process.returncode == 0
        assert json.loads(out)["record"]["block"] == 1
        assert ", attempt 2 of 11; the last one: TRANSPORT_LOST: nothing listens there" in text
        _, _, rest = text.rpartition("\x1b[2K")  # the line is erased
        assert rest.strip() == f"validator-channel: connected to 127.0.0.1:{world.gateway.port}"


def read_terminal(ours: int) -> str:
    """Return what a process writes to a terminal, until it ends."""
    data = b""
    with suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # EIO: the other side is closed
        while chunk := terminal.read(65_536):
            data += chunk
    return data.decode()


@pytest.mark.parametrize("text", [b"[gateways", b"\xff", b"a = " + b"[" * 5_000, b"peer = " + b"9" * 5_000])
def test_file_that_is_no_toml_is_one_line(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "peer.toml").write_bytes(text)
    with pytest.raises(ConfigError, match=r"peer\.toml: expected TOML: [^\n]*$"):
        load_config(tmp_path / "peer.toml")
