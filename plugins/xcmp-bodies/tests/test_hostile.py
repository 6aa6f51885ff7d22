# SPDX-License-Identifier: Apache-2.0
"""What whoever may write to `xcmp.bodies` can do to the operator: have records refused, and nothing that grows without bound."""

from __future__ import annotations

import marshal
from typing import Any

import pytest
from validator_xcmp_bodies import bodies as bodies_module
from validator_xcmp_bodies import parts as parts_module
from validator_xcmp_bodies import records
from validator_xcmp_bodies.bodies import Bodies
from validator_xcmp_bodies.job import DETAIL_CHARACTERS_MAX, open_job
from validator_xcmp_bodies.limits import PART_BYTES_MAX, PAYLOADS_MAX, parts_max
from validator_xcmp_bodies.outcomes import BodyPart, EventKind, Held, IngressEvent, RecordOffset, Refused, Settings
from validator_xcmp_bodies.pages import Pages, restore
from validator_xcmp_bodies.parts import BodyError, Part, condense, cut, measure

from validator.plugin.job_api import JobContext, JobRecord

LANE, SENDER, RECIPIENT, BLOCK = "polkadot", 1, 2, 5
BODY = [b"one", b"two"]
CLAIM = measure(BODY)
CHAINS = {LANE: {"protocol": "xcmp-network", "limits": {}}}


def listing(settings: Settings | None = None) -> Bodies:
    bodies = Bodies(settings or Settings())
    bodies.apply(IngressEvent(BLOCK, EventKind.QUEUED, RECIPIENT, SENDER, BLOCK, CLAIM.root, CLAIM.size))
    bodies.finish()
    return bodies


def part(number: int = 0, count: int = 1, payloads: list[bytes] | None = None, **changes: Any) -> BodyPart:
    content = condense(Part(tuple(BODY if payloads is None else payloads)))
    made = BodyPart(SENDER, RECIPIENT, BLOCK, CLAIM.root, CLAIM.size, number, count, content)
    return made._replace(**changes)


def refusals(bodies: Bodies) -> list[str]:
    return [each.refusal.kind for each in bodies.finish() if isinstance(each, Refused)]


def record(value: bytes | None, key: bytes = b"polkadot/2") -> JobRecord:
    return JobRecord(records.BODIES, 0, 7, key, value or b"")


def detail(value: bytes | None) -> str:
    """Return why a record is no part of a body."""
    job = open_job(JobContext("xcmp-bodies", {}, CHAINS))
    ((key, content),) = job.condense(record(value))
    assert key == job.keys[0]
    found = marshal.loads(content)
    assert isinstance(found, str)
    assert len(found) <= DETAIL_CHARACTERS_MAX
    assert found.isprintable()
    return found


def encoded(**changes: Any) -> bytes:
    """Return a record that no client of ours would write."""
    (right,) = records.encode_body(LANE, (SENDER, RECIPIENT, BLOCK), BODY)
    return records.formats()[records.BODIES].encode({**records.decode(records.BODIES, right.value), **changes})


# --- records ---


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "expected a record validator.xcmp_bodies.Body, found bytes that start with "),
        (b"\xc3\x01", "expected a record validator.xcmp_bodies.Body, found bytes that start with c301"),
        (
            encoded()[:-1],
            "validator.xcmp_bodies.Body.pieces: expected the end of a list, 0 at byte 68, found the end of",
        ),
        (encoded() + b"\0", "validator.xcmp_bodies.Body: expected the end of the record at byte 69, found 1 more byte"),
        (
            encoded().replace(b"polkadot", b"\xff\xfe\xfd\xfcadot"),
            "validator.xcmp_bodies.Body.lane: expected UTF-8 at byte 11, found 0xff",
        ),
        (encoded(sender=2**40), "sender: expected 0 to 4294967295, found 1099511627776"),
        (encoded(sent_at=-1), "sent_at: expected 0 to 4294967295, found -1"),
        (encoded(size=2**62), "size: expected 0 to 4294967295"),
        (encoded(parts=2**33), "parts: expected 0 to 4294967295"),
        (encoded(pieces=[bytes(PART_BYTES_MAX)]), "part: expected at most 262144 bytes"),
        (encoded(lane="kusama"), "lane: 'kusama' has no bodies"),
        (encoded(lane="polkadot\n\x1b[2Jx\u202e"), "lane: 'polkadot\\n\\x1b[2Jx\\u202e' has no bodies"),
        (encoded(lane="Ｐ" * 100_000), "lane: '" + "Ｐ" * 64 + "' has no bodies"),  # noqa: RUF001
    ],
)
def test_a_record_that_is_no_part_is_refused_in_one_printable_line(value: bytes | None, why: str) -> None:
    assert why in detail(value)


def test_every_cut_off_record_is_refused() -> None:
    value = encoded()
    for length in range(len(value)):
        detail(value[:length])


def test_avro_that_announces_more_than_it_has_is_refused() -> None:
    """A length of 2**62 costs nothing: the bytes that follow are counted, not the announced ones."""
    value = encoded(pieces=[b"\x07" * 3])
    at = value.rindex(b"\x06\x07\x07\x07")
    for length in (2**62, -(2**62), 2**31):
        zigzag, out = (length << 1) ^ (length >> 63), bytearray()
        while zigzag >> 7:
            out.append(zigzag & 0x7F | 0x80)
            zigzag >>= 7
        out.append(zigzag)
        assert ".pieces[0]: expected a length from 0 to " in detail(value[:at] + bytes(out) + value[at + 1 :])


def test_too_many_pieces_are_refused_before_any_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "payload_leaf", None)
    with pytest.raises(BodyError, match=f"expected at most {PAYLOADS_MAX} pieces, found {PAYLOADS_MAX + 1}"):
        condense(Part((b"",) * (PAYLOADS_MAX + 1)))


def test_the_content_decides_whose_body_it_is_not_the_key() -> None:
    job = open_job(JobContext("xcmp-bodies", {"buckets": 3}, CHAINS))
    for key in (b"polkadot/2", b"kusama/1", b"polkadot/3", b"", b"\xff"):
        ((bucket, _),) = job.condense(record(encoded(), key))
        assert bucket == "polkadot/xcmp-bodies/2-3"


# --- parts of a listed body ---


def test_ten_thousand_parts_of_a_small_body_keep_nothing() -> None:
    bodies = listing()
    for number in range(10_000):
        bodies.offer(part(number, 10_000), RecordOffset(0, number))
    assert bodies.queues[RECIPIENT].waiting_bytes == 0
    assert refusals(bodies) == ["Body/Malformed"] * 10_000


def test_as_many_parts_as_allowed_keep_no_more_than_the_declared_size() -> None:
    bodies, most = listing(), parts_max(CLAIM.size)
    for number in range(most):
        bodies.offer(part(number, most, [b""] * 16_000), RecordOffset(0, number))
        kept = bodies.queues[RECIPIENT].waiting_bytes
        assert kept <= 32 * PAYLOADS_MAX
    bodies.offer(part(), RecordOffset(0, most))
    assert any(isinstance(each, Held) for each in bodies.finish()), "the right body is held all the same"


def test_a_body_cut_in_another_way_in_every_record_keeps_one_part() -> None:
    bodies = listing()
    for count in range(1, 1_000):
        bodies.offer(part(0, 1 + count % parts_max(CLAIM.size), [b""]), RecordOffset(0, count))
        assert len(bodies.queues[RECIPIENT].entries[BLOCK, SENDER].kept) <= 1


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (part(sender=9), "Body/NotExpected"),
        (part(sent_at=BLOCK + 1), "Body/NotExpected"),
        (part(recipient=2**32 - 1), "Body/NotExpected"),
        (part(size=CLAIM.size + 1), "Body/SizeMismatch"),
        (part(root=bytes(32)), "Body/RootMismatch"),
        (part(payloads=[b"twoone"]), "Body/RootMismatch"),
        (part(payloads=[b"two", b"one"]), "Body/RootMismatch"),
        (part(payloads=[b"one"]), "Body/SizeMismatch"),
        (part(1, 1), "Body/Malformed"),
        (part(0, 0), "Body/Malformed"),
        (part(2**32 - 1, 2**32 - 1), "Body/Malformed"),
    ],
)
def test_a_wrong_part_is_refused_and_the_right_body_is_held_after_it(wrong: BodyPart, kind: str) -> None:
    bodies = listing()
    bodies.offer(wrong, RecordOffset(0, 0))
    assert refusals(bodies) == [kind]
    assert len(bodies.queues) == 1
    bodies.offer(part(), RecordOffset(0, 1))
    bodies.offer(part(), RecordOffset(0, 2))
    held, refused = bodies.finish()[:2]
    assert isinstance(held, Held)
    assert isinstance(refused, Refused)
    assert refused.refusal.kind == "Body/Duplicate"


def test_parts_in_any_order_and_twice_are_held_once() -> None:
    bodies = Bodies(Settings())
    large = [bytes(600_000), b"end"]
    found, parts = measure(large), cut(large)
    bodies.apply(IngressEvent(BLOCK, EventKind.QUEUED, RECIPIENT, SENDER, BLOCK, found.root, found.size))
    for offset, number in enumerate((2, 0, 2, 0, 1, 1, 0)):
        claim = BodyPart(SENDER, RECIPIENT, BLOCK, found.root, found.size, number, 3, condense(parts[number]))
        bodies.offer(claim, RecordOffset(0, offset))
    out = bodies.finish()
    assert [each.places for each in out if isinstance(each, Held)] == [
        (RecordOffset(0, 1), RecordOffset(0, 4), RecordOffset(0, 0))
    ]
    assert [each.refusal.kind for each in out if isinstance(each, Refused)] == ["Body/Duplicate"] * 4


# --- bodies that nobody lists ---


def test_bodies_for_made_up_recipients_are_bounded_and_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a buffer for unlisted bodies, each recipient that a record names would otherwise stay known."""
    monkeypatch.setattr(bodies_module, "UNLISTED_TOTAL_BYTES_MAX", 100_000)
    bodies = listing(Settings(unlisted_bytes=1_000, unlisted_blocks=2))
    pages, stored = Pages(bodies), {}

    def store() -> None:
        for name, page in pages.changes():
            if page is None:
                del stored[name]
            else:
                stored[name] = page

    store()
    before = dict(stored)
    offset = 0
    for block in range(BLOCK + 1, BLOCK + 30):
        bodies.advance(block)
        for stranger in range(500):
            bodies.offer(part(recipient=1_000 * block + stranger), RecordOffset(0, offset))
            offset += 1
        refused = refusals(bodies)
        store()
        restored = restore(bodies.settings, stored)
        total = sum(queue.unlisted_bytes for queue in bodies.queues.values())
        assert total == sum(each.bytes for queue in restored.queues.values() for each in queue.unlisted)
        assert total <= 100_000 + 1_000
        assert refused
        assert len(bodies.queues) < 1_000
    for block in range(BLOCK + 30, BLOCK + 34):
        bodies.advance(block)
        bodies.finish()
        store()
    assert list(bodies.queues) == [RECIPIENT]
    assert stored.keys() == before.keys()


def test_without_a_buffer_a_stranger_creates_nothing() -> None:
    bodies = listing()
    for stranger in range(3, 5_000):
        bodies.offer(part(recipient=stranger), RecordOffset(0, stranger))
    assert list(bodies.queues) == [RECIPIENT]
    assert set(refusals(bodies)) == {"Body/NotExpected"}
