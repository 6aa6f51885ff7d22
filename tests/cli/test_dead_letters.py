# SPDX-License-Identifier: Apache-2.0
"""`validator dead-letters`: found, looked at, mended, put back; and not for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import Follower, follower, invoke, lines
from validator.codec.encode import encode_dead_letter
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.service.sender import RecordSender

if TYPE_CHECKING:
    from typer.testing import Result


class Letters:
    """A chain's topics, with dead letters that are put there by hand."""

    def __init__(self, chain: Follower) -> None:
        self.chain = chain
        self.prefix = chain.config.topics.prefix
        self.count = 0

    def put(self, raw: bytes, *, reason: DeadReason = DeadReason.UNDECODABLE, source: Source | None = None,
            lane: str = "polkadot", block: int | None = None, detail: str = "it is broken") -> str:  # fmt: skip
        """Put a dead letter on the topic and return its place."""
        source = source or Source(f"{self.prefix}candidates", 0, 1000 + self.count)
        letter = encode_dead_letter(DeadLetter(lane, reason, detail, source, raw, block, None if block is None else 0))
        sender = RecordSender(self.chain.config.kafka, self.prefix)
        sender.send(letter.topic, letter.key, letter.value)
        sender.flush()
        self.count += 1
        return f"0/{self.count - 1}"

    def run(self, *arguments: str) -> Result:
        return invoke("dead-letters", *arguments, self.chain.option())

    def json(self, *arguments: str) -> list[dict[str, Any]]:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return lines(result.stdout)


@pytest.fixture
def letters(
    tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object], request: pytest.FixtureRequest
) -> Letters:
    prefix = request.node.name.partition("[")[0][-60:] + "."
    return Letters(follower(tmp_path_factory.mktemp("letters"), kafka, prefix, blocks=3))


def test_dead_letters_are_listed_with_all_that_is_known(letters: Letters) -> None:
    result = letters.run("list")
    assert result.stdout == "0 dead letters\n", result.stderr
    letters.put(b"one")
    letters.put(b"two!", reason=DeadReason.LATE, block=7, source=Source("blocks", 0, 5))
    letters.put(b"", lane="kusama", detail="an escape \x1b[2J in it")
    first, second, third = letters.json("list")
    assert first == {
        "place": "0/0", "timestamp_ms": first["timestamp_ms"], "lane": "polkadot", "reason": "UNDECODABLE", "detail": "it is broken",
        "topic": f"{letters.prefix}candidates", "partition": 0, "offset": 1000, "block": None, "index": None, "bytes": 3, "attempt": 1,
        "replayed": None,
    }  # fmt: skip
    assert (second["reason"], second["block"], second["topic"]) == ("LATE", 7, f"{letters.prefix}blocks")
    assert letters.json("list", "--lane=kusama") == [third]
    assert letters.json("list", "--reason=late") == [second]
    assert letters.json("list", "--limit=2") == [second, third]
    shown = letters.run("list", "--limit=2").stdout.splitlines()
    assert shown[-1] == "3 dead letters: 1 LATE, 2 UNDECODABLE (the last 2 shown)"
    assert f"polkadot  LATE  {letters.prefix}blocks[0]@5  7  0  1 of 3  it is broken" in shown[0]
    assert r"an escape \x1b[2J in it" in shown[1]
