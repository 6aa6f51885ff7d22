# SPDX-License-Identifier: Apache-2.0
"""Which dead letters may be replayed, and the number of each attempt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.codecs import encoded
from validator.cli.dead_letters import DUMPED_BYTES_MAX, hex_dump
from validator.codec.encode import encode_dead_letter
from validator.config import Chain, Config
from validator.config.model import DeadLetters
from validator.core.inputs import DeadLetter, DeadReason, RecordKind, Source
from validator.kafka.reader import TopicRecord
from validator.letters.dead_letters import DeadLetterOffset, Filter, Ledger, Replay, StoredLetter
from validator.letters.replayer import Declined, Task, judge, pointless
from validator.visible import printable

RECORD: dict[str, Any] = {"lane": "polkadot", "block": 17, "index": 0, "para_id": 2000, "msg": "0102"}
GOOD = encoded(RecordKind.DOWNWARD, RECORD)
STRANGER = encoded(RecordKind.DOWNWARD, {**RECORD, "lane": "westend"})
CONFIG = Config(chains={"polkadot": Chain()}, dead_letters=DeadLetters(attempts_max=2))


def letter(offset: int = 0, *, raw: bytes = GOOD, topic: str = "downward-messages", at: int = 5) -> StoredLetter:
    dead = DeadLetter("polkadot", DeadReason.LATE, "late", Source(topic, 0, at), raw, 17, 0)
    return StoredLetter.of(TopicRecord("dead-letters", 0, offset, b"", encode_dead_letter(dead).value, 9), "validator.")


def replay(offset: int, attempt: int, at: int, *, partition: int = 0) -> Replay:
    return Replay(
        DeadLetterOffset(partition, offset), attempt, Source("validator.downward-messages", 0, at), repaired=False
    )


def judged(
    ledger: Ledger, of: StoredLetter, *, repaired: bytes | None = None, again: bool = False, force: bool = False
) -> Task | Declined:
    return judge(of, ledger, CONFIG, repaired=repaired, again=again, force=force)


def test_stored_letter_has_full_topic_name() -> None:
    for topic in ("downward-messages", "validator.downward-messages"):
        assert letter(topic=topic).source == Source("validator.downward-messages", 0, 5)
    assert letter(topic="elsewhere").source.topic == "elsewhere"
    assert (letter().raw, letter().reason, letter().place) == (GOOD, "LATE", DeadLetterOffset(0, 0))


def test_ledger_entry_round_trips_as_record() -> None:
    entry = Replay(DeadLetterOffset(3, 2**40), 2, Source("validator.candidates", 1, 7), repaired=True)
    topic, key, value, headers = entry.encode()
    assert (topic, key, headers) == ("dead-letter-replays", b"3/1099511627776/2", ())
    assert Replay.of(TopicRecord(topic, 0, 0, key, value, 0)) == entry


@pytest.mark.parametrize(
    ("replays", "attempt"),
    [
        ([], 1),
        ([replay(1, 1, 5, partition=1)], 2),  # an earlier replay wrote the record that became this letter
        ([replay(1, 2, 6)], 1),  # another record
        ([replay(0, 1, 9)], 2),  # an earlier replay of the letter itself
        ([replay(1, 2, 5), replay(0, 3, 9), replay(0, 4, 10)], 5),
        ([replay(1, 3, 5), replay(0, 4, 9), replay(1, 2, 4)], 5),
    ],
)
def test_attempt_is_one_more_than_last(replays: list[Replay], attempt: int) -> None:
    assert Ledger(replays).next_attempt(letter()) == attempt
    assert Ledger(reversed(replays)).next_attempt(letter()) == attempt


def test_record_is_replayed_unchanged_with_key_of_lane() -> None:
    expected = Task(DeadLetterOffset(0, 0), "validator.downward-messages", b"polkadot", GOOD, 1, repaired=False)
    assert judged(Ledger(), letter()) == expected
    assert judged(Ledger(), letter(raw=b"bad"), repaired=GOOD) == expected._replace(repaired=True)
    stranger = letter(raw=STRANGER)
    assert judged(Ledger(), stranger, force=True) == expected._replace(raw=STRANGER, key=b"westend")
    assert judged(Ledger(), letter(raw=b"bad"), force=True) == expected._replace(raw=b"bad")


@pytest.mark.parametrize(
    ("replays", "of", "outcome", "why"),
    [
        ([replay(0, 1, 9)], letter(), "skipped", "already put back as validator.downward-messages[0]@9 (attempt 1); --again"),
        ([replay(1, 2, 5)], letter(), "refused", "already put back 2 times, and [dead_letters] attempts_max is 2"),
        ([], letter(topic="x"), "refused", "it came from x, expected one of validator.blocks, "),
        ([], letter(topic="validator.verdicts"), "refused", "it came from validator.verdicts, expected one of validator.blocks, "),
        ([], letter(raw=b""), "refused", "it would be dead on arrival: UNDECODABLE: expected Avro single-object"),
        ([], letter(raw=STRANGER), "refused", "it would be dead on arrival: UNKNOWN_LANE: lane 'westend' is not configured"),
        ([], letter(raw=GOOD + b"x"), "refused", "it would be dead on arrival: UNDECODABLE: validator.DownwardMessage: expected"),
    ],
)  # fmt: skip
def test_unsuitable_letter_is_declined(replays: list[Replay], of: StoredLetter, outcome: str, why: str) -> None:
    declined = judged(Ledger(replays), of)
    assert isinstance(declined, Declined)
    assert declined.outcome == outcome
    assert declined.why.startswith(why)


def test_any_lane_is_accepted_without_configured_chains() -> None:
    """As in `validator submit`: a configuration with only Kafka's address does not know which lanes a job has."""
    alone = judge(letter(raw=STRANGER), Ledger(), Config(), repaired=None, again=False, force=False)
    assert isinstance(alone, Task)
    assert alone.key == b"westend"


@pytest.mark.parametrize(
    ("executed", "expected"),
    [
        ({}, None),
        ({"kusama": 99}, None),
        ({"polkadot": None}, None),
        ({"polkadot": 16}, None),
        ({"polkadot": 17}, "it belongs to block 17, and lane polkadot has already executed block 17"),
        ({"polkadot": 40}, "it belongs to block 17, and lane polkadot has already executed block 40"),
    ],
)
def test_replay_for_passed_block_is_pointless(executed: dict[str, int | None], expected: str | None) -> None:
    assert pointless(letter(), GOOD, CONFIG, executed) == expected
    assert pointless(letter(raw=b"bad"), GOOD, CONFIG, executed) == expected
    assert pointless(letter(), b"bad", CONFIG, executed) is None


def test_no_option_overrides_attempt_limit_or_unknown_topic() -> None:
    for replays, of in ([replay(0, 1, 8), replay(0, 2, 9)], letter()), ([], letter(topic="x")):
        declined = judged(Ledger(replays), of, repaired=GOOD, again=True, force=True)
        assert isinstance(declined, Declined)
        assert declined.outcome == "refused"


def test_filter_requires_lane_and_reason() -> None:
    assert Filter().takes(letter())
    assert Filter("polkadot", "LATE").takes(letter())
    assert not Filter("polkadot", "FORK").takes(letter())
    assert not Filter("kusama").takes(letter())


def test_hex_dump_shows_bytes_and_truncation() -> None:
    assert hex_dump(b"") == []
    assert hex_dump(b"0123456789abcdef\x00") == [
        "00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|",
        f"00000010  {'00':<23}  {'':<23}  |.|",
    ]
    assert len(hex_dump(bytes(DUMPED_BYTES_MAX))) == DUMPED_BYTES_MAX // 16
    assert hex_dump(bytes(DUMPED_BYTES_MAX + 3))[-1] == "... and 3 more bytes: --raw FILE writes all of them"


def test_control_characters_are_escaped() -> None:
    assert printable("Grüße\x1b[2J\r\n\u202e") == r"Grüße\x1b[2J\r\n\u202e"
