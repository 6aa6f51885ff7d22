# SPDX-License-Identifier: Apache-2.0
"""Single queues in blocks that simulated chains seldom have."""

from __future__ import annotations

import tracemalloc
from hashlib import blake2b

import pytest
from validator_journeys.content import Content, content_of
from validator_journeys.facts import (
    BlockFact,
    CandidateFact,
    DispatchFact,
    EventFact,
    Fact,
    Pending,
    Place,
    Range,
    Ref,
    Source,
    VerdictFact,
    decode_fact,
    encode_fact,
)
from validator_journeys.pages import changes, restore
from validator_journeys.plain import decode_plain, encode_plain
from validator_journeys.waiting import By, Channels, Queue, Queued, Step, Waiting, pack

from validator.plugin.protocol_api import DecodeError

HEAD = bytes(32)
A, B, LARGE = (content_of("upward", payload) for payload in (b"a", b"b", b"large"))


def waiting_of(channels: Channels = Channels.OWN_QUEUES) -> Waiting:
    return Waiting("polkadot", channels)


def play(waiting: Waiting, block: int, *facts: tuple[Source, int, Fact]) -> list[str]:
    """Apply a block, and return its steps: the message, then how it ended, with ``?`` if nobody saw it queued."""
    for source, index, fact in facts:
        assert decode_fact(source, encode_fact(fact)) == fact
        waiting.add(Place(block, source, index), encode_fact(fact))
    return list(map(shown, waiting.apply(block)))


def shown(step: Step) -> str:
    name = str(step.identity).removeprefix("polkadot.")
    if step.end is None:
        return f"{name} queued"
    return f"{name} {step.end.fate}{'' if step.end.detail is None else ' ' + step.end.detail}{'?' if step.queued is None else ''}"


def enacted(para: int, refs: tuple[Ref, ...] = (), *received: Range, signals: bool = False) -> VerdictFact:
    return VerdictFact(para, enacted=True, messages=refs, received=received, signals=signals)


def upward(*contents: Content) -> CandidateFact:
    return CandidateFact(contents)


def test_dispatch_takes_the_first_with_its_payload() -> None:
    waiting = waiting_of()
    queued = play(waiting, 1, (Source.CANDIDATE, 0, upward(A, B, A)), (Source.VERDICT_OF_CANDIDATE, 0, enacted(7)))
    assert queued == [f"upward.7.relay.0.{number} queued" for number in (1, 2, 3)]
    assert play(waiting, 2, (Source.DISPATCH, 0, DispatchFact(7, B, "ok"))) == ["upward.7.relay.0.2 dispatched ok"]
    assert play(
        waiting,
        3,
        *(
            (Source.DISPATCH, index, DispatchFact(7, A, outcome))
            for index, outcome in enumerate(("failed", "ok", "ok", "ok"))
        ),
    ) == [
        "upward.7.relay.0.1 dispatched failed",
        "upward.7.relay.0.3 dispatched ok",
        "upward.7.relay.0.0 dispatched ok?",
        "upward.7.relay.0.-1 dispatched ok?",
    ]


def test_signals_are_no_messages() -> None:
    waiting, empty = waiting_of(), content_of("upward", b"")
    assert play(
        waiting,
        1,
        (Source.CANDIDATE, 0, upward(A, empty, B)),
        (Source.VERDICT_OF_CANDIDATE, 0, enacted(7, signals=True)),
    ) == ["upward.7.relay.0.1 queued"]
    assert (
        len(play(waiting, 2, (Source.CANDIDATE, 0, upward(empty, B)), (Source.VERDICT_OF_CANDIDATE, 0, enacted(7))))
        == 2
    )


def test_oversized_messages_are_dropped_when_they_are_queued() -> None:
    waiting = waiting_of()
    play(waiting, 1, (Source.CANDIDATE, 0, upward(LARGE)), (Source.VERDICT_OF_CANDIDATE, 0, enacted(7)))
    event = EventFact("messages_dropped", 7, 7, "oversized", (Range(7, 2, 2, 5),))
    steps = play(
        waiting,
        2,
        (Source.CANDIDATE, 0, upward(A, LARGE)),
        (Source.VERDICT_OF_CANDIDATE, 0, enacted(7)),
        (Source.CHANNEL_EVENT, 0, event),
    )
    assert steps[-1] == "upward.7.relay.0.3 dropped oversized"
    pages_begin = EventFact("messages_dropped", 7, 7, "oversized", (Range(7, 1, 1, 5),))
    assert play(waiting, 3, (Source.CHANNEL_EVENT, 0, pages_begin)) == ["upward.7.relay.0.1 dropped oversized"]
    assert play(waiting, 4, (Source.CHANNEL_EVENT, 0, pages_begin)) == ["upward.7.relay.0.0 dropped oversized?"]
    assert list(waiting.queues[7, None].waiting) == [2]


def test_offboarding_drops_what_waits_and_counts_downward_messages_again() -> None:
    waiting = waiting_of()
    play(waiting, 1, (Source.CANDIDATE, 0, upward(A, B)), (Source.VERDICT_OF_CANDIDATE, 0, enacted(7)))
    gone = EventFact("messages_dropped", 7, 7, "offboarded", (Range(None, 0, 1, 2), Range(7, 1, 3, 3)))
    ref = Ref(7, 1, HEAD)
    assert play(
        waiting,
        2,
        (Source.DOWNWARD, 0, A),
        (Source.VERDICT_OF_DOWNWARD, 0, VerdictFact(7, enacted=True, messages=(ref,))),
        (Source.CHANNEL_EVENT, 0, gone),
    ) == [
        "downward.relay.7.0.1 queued",
        "downward.relay.7.0.0 dropped offboarded?",
        "downward.relay.7.0.1 dropped offboarded",
        "upward.7.relay.0.0 dropped offboarded?",
        "upward.7.relay.0.1 dropped offboarded",
        "upward.7.relay.0.2 dropped offboarded",
    ]
    assert play(waiting, 3, (Source.VERDICT_OF_DOWNWARD, 0, VerdictFact(7, enacted=True, messages=(ref,)))) == [
        "downward.relay.7.2.1 queued"
    ]


def test_channel_that_closes_and_opens_in_a_block() -> None:
    waiting = waiting_of()
    to = 8
    refs = tuple(Ref(to, number, HEAD) for number in (1, 2, 3))
    sent = CandidateFact((), tuple((to, A) for _ in refs))
    play(waiting, 1, (Source.CHANNEL_EVENT, 0, EventFact("opened", 7, to)))
    assert play(waiting, 2, (Source.CANDIDATE, 0, sent), (Source.VERDICT_OF_CANDIDATE, 0, enacted(7, refs))) == [
        f"horizontal.7.8.1.{number} queued" for number in (1, 2, 3)
    ]
    assert play(
        waiting,
        3,
        (Source.VERDICT_OF_INCLUSION, 0, enacted(7, (Ref(to, 4, HEAD),))),
        (Source.VERDICT_OF_INCLUSION, 1, enacted(to, (), Range(7, 1, 2, 2))),
        (Source.CANDIDATE, 0, CandidateFact((), ((to, B),))),
        (Source.VERDICT_OF_CANDIDATE, 0, enacted(7, (Ref(to, 1, HEAD),))),
        (Source.CHANNEL_EVENT, 0, EventFact("closed", 7, to, "cleaned", (Range(7, 3, 4, 2),))),
        (Source.CHANNEL_EVENT, 1, EventFact("opened", 7, to)),
    ) == [
        "horizontal.7.8.1.4 queued",
        "horizontal.7.8.1.1 received",
        "horizontal.7.8.1.2 received",
        "horizontal.7.8.1.3 dropped cleaned",
        "horizontal.7.8.1.4 dropped cleaned",
        "horizontal.7.8.3.1 queued",
    ]
    ((_, queued),) = waiting.each()
    assert queued.content == B


@pytest.mark.parametrize("by_hash", [False, True])
def test_inclusion_names_its_candidate(by_hash: bool) -> None:
    waiting = waiting_of()
    for block, content in ((1, A), (2, B)):
        kept = VerdictFact(7, enacted=False, candidate_hash=bytes([block]) * 32 if by_hash else None)
        play(waiting, block, (Source.CANDIDATE, 0, upward(content)), (Source.VERDICT_OF_CANDIDATE, 0, kept))
    one, two = (bytes([block]) * 32 if by_hash else None for block in (1, 2))
    listed = BlockFact((Pending(7, 2),), (Pending(7, None),))
    included = VerdictFact(7, enacted=True, candidate_hash=two)
    play(waiting, 3, *([] if by_hash else [(Source.BLOCK, 0, listed)]), (Source.VERDICT_OF_INCLUSION, 0, included))
    ((_, queued),) = waiting.each()
    assert queued.content == B
    stranger = VerdictFact(7, enacted=False, candidate_hash=bytes([9]) * 32)
    play(waiting, 4, (Source.VERDICT_OF_TIMEOUT, 0, stranger))
    assert waiting.pending, "it was backed before the job began"
    timed_out = VerdictFact(7, enacted=False, candidate_hash=one)
    play(waiting, 5, (Source.BLOCK, 0, listed), (Source.VERDICT_OF_TIMEOUT, 0, timed_out))
    assert not waiting.pending


def test_skipped_messages_are_not_queued() -> None:
    waiting = waiting_of()
    sent = CandidateFact((), ((8, A), (9, B), (9, A)))
    refs = Ref(9, 4, HEAD), Ref(9, 5, HEAD)
    play(waiting, 1, (Source.CANDIDATE, 0, sent), (Source.VERDICT_OF_CANDIDATE, 0, enacted(7, refs)))
    assert [(str(name), queued.content) for name, queued in waiting.each()] == [
        ("polkadot.horizontal.7.9.0.4", B),
        ("polkadot.horizontal.7.9.0.5", A),
    ]


def test_late_and_repeated_facts_change_nothing() -> None:
    waiting = waiting_of()
    facts = (Source.CANDIDATE, 0, upward(A)), (Source.VERDICT_OF_CANDIDATE, 0, enacted(7))
    assert len(play(waiting, 5, *facts, (Source.CANDIDATE, 0, upward(B, B)))) == 1
    assert play(waiting, 5, *facts) == play(waiting, 4, *facts) == []
    assert not waiting.ahead
    play(waiting, 8)
    assert waiting.height == 8


@pytest.mark.parametrize("value", [None, True, False, 0, -1, 2**63, 2**127, b"", b"x", "é", (), (1, (b"", None), "a")])
def test_plain_values_come_back(value: object) -> None:
    assert decode_plain(encode_plain(value)) == value
    assert type(decode_plain(encode_plain(value))) is type(value)


@pytest.mark.parametrize("encoded", [b"", b"\xc1", b"\xc4\x04", b"\xc0\xc0", b"\xd4\x05\x00", b"\xa1\xff"])
def test_what_is_no_plain_value_is_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_plain(encoded)


def test_value_without_a_plain_form_is_a_bug() -> None:
    with pytest.raises(TypeError, match="expected a value that has a plain form"):
        encode_plain((1.5, {1}))


def test_a_waiting_message_takes_less_than_a_kibibyte() -> None:
    """With the summary of a transfer of six instructions and its assets, 300 bytes."""
    count = 20_000
    tracemalloc.start()
    waiting = waiting_of()
    queue = waiting.queues[7, 8] = Queue(17)
    for number in range(1, count + 1):
        one, other = (blake2b(bytes([side]) + number.to_bytes(8), digest_size=32).digest() for side in (0, 1))
        content = Content(one, 300, b"s" * 300)
        queue.waiting[number] = pack(Queued(20_000_000 + number, By("candidate", 7, other), 7, one, content))
        waiting.touched_chunks[7, 8].add(number // 64)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / count < 640
    pages = {name: page for name, page in changes(waiting, set()) if page is not None}
    assert restore("polkadot", Channels.OWN_QUEUES, pages).queues == waiting.queues
    assert sum(map(len, pages.values())) / count < 512
