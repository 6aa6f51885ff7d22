# SPDX-License-Identifier: Apache-2.0
"""The operator against its naive model: random queues, cuts, defects and orders of arrival, with the state stored after any batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bodies_model import PARTS_MAX, Model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from validator_xcmp_bodies import queue as queue_module
from validator_xcmp_bodies.bodies import Bodies
from validator_xcmp_bodies.outcomes import (
    KINDS,
    BodyPart,
    EventKind,
    Flow,
    Held,
    IngressEvent,
    QueueStatus,
    RecordOffset,
    Refused,
    Wanted,
)
from validator_xcmp_bodies.outcomes import Settings as Rules
from validator_xcmp_bodies.pages import Pages, restore
from validator_xcmp_bodies.parts import condense, cut, measure

RECIPIENTS, SENDERS, BLOCKS = (1, 2), (3, 4), 6
CONTENTS = ([b"one", b"two", b"three"], [], [b""], [b"x" * 50, b"y"], [b"z" * 90], [b"one", b"twO", b"three"])


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    """Let the operator take more parts than a body of this size would have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_module, "parts_max", lambda size: PARTS_MAX)
        yield


RULES = st.builds(
    Rules,
    wanted_after_blocks=st.integers(1, 2),
    wanted_interval_blocks_max=st.just(3),
    wanted_per_batch_max=st.integers(1, 3),
    sender_requests=st.integers(0, 2),
    unlisted_bytes=st.sampled_from((0, 0, 600)),
    unlisted_blocks=st.integers(1, 2),
    alarm_blocks=st.just(3),
)


@st.composite
def batches(draw: st.DrawFn) -> list[list[tuple[Any, ...]]]:
    """A chain's blocks, cut into batches: events of blocks, and parts of bodies that are right, wrong or nobody's."""
    found: list[list[tuple[Any, ...]]] = []
    listed: dict[tuple[int, int, int], list[bytes]] = {}
    block, offset = 0, 0
    for _ in range(draw(st.integers(1, 6))):
        batch: list[tuple[Any, ...]] = []
        for _ in range(draw(st.integers(0, 2))):
            block += 1
            for sender in SENDERS:
                for recipient in RECIPIENTS:
                    if draw(st.booleans()):
                        payloads = draw(st.sampled_from(CONTENTS))
                        listed[sender, recipient, block] = payloads
                        batch.append(("event", EventKind.QUEUED, block, (sender, recipient, block), payloads))
            for name in sorted(listed):
                if draw(st.integers(0, 5)) == 0:
                    kind = draw(st.sampled_from((EventKind.ACKNOWLEDGED, EventKind.REMOVED)))
                    batch.append(("event", kind, block, name, listed[name]))
            batch.append(("advance", block))
        parts: list[tuple[Any, ...]] = []
        for _ in range(draw(st.integers(0, 6))):
            names = [*sorted(listed), (3, 1, draw(st.integers(1, BLOCKS)))]
            name = draw(st.sampled_from(names))
            claimed = listed.get(name, CONTENTS[0])
            real = draw(st.sampled_from((claimed, claimed, claimed, *CONTENTS)))
            claim = draw(st.sampled_from((claimed, claimed, claimed, *CONTENTS)))
            pieces = cut(real, draw(st.integers(14, 60)))
            count = len(pieces) if draw(st.integers(0, 9)) else len(pieces) + 1
            parts += [(name, claim, part, number, count) for number, part in enumerate(pieces)]
        kept = draw(st.permutations(parts)) if parts else []
        for name, claim, part, number, count in kept[: draw(st.sampled_from((len(kept), len(kept), len(kept) // 2)))]:
            batch.append(("part", name, claim, part, number, count, RecordOffset(0, offset)))
            offset += 1
        found.append(batch)
    return found


def as_model(outcome: Any) -> tuple[Any, ...] | None:
    match outcome:
        case Held():
            return ("held", outcome.recipient, outcome.sender, outcome.sent_at, outcome.payloads, outcome.places)
        case Refused():
            assert outcome.refusal.kind in KINDS
            return ("refused", outcome.refusal.kind, outcome.place)
        case Wanted():
            return ("wanted", outcome.recipient, outcome.sender, outcome.sent_at, outcome.attempt, outcome.replicas)
    return None


def play(bodies: Bodies, batch: list[tuple[Any, ...]], model: Any = None) -> list[Any]:
    for kind, *rest in batch:
        if kind == "advance":
            bodies.advance(rest[0])
            if model:
                model.height = max(model.height, rest[0])
        elif kind == "event":
            event_kind, block, (sender, recipient, sent_at), payloads = rest
            found = measure(payloads)
            event = IngressEvent(block, event_kind, recipient, sender, sent_at, found.root, found.size)
            bodies.apply(event)
            if model:
                model.event(event)
        else:
            (sender, recipient, sent_at), claim, part, number, count, place = rest
            found = measure(claim)
            offered = BodyPart(sender, recipient, sent_at, found.root, found.size, number, count, condense(part))
            bodies.offer(offered, place)
            if model:
                model.offer(offered, part, place)
    return bodies.finish()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(batches(), RULES)
def test_outcomes_are_those_of_the_model(found: list[list[tuple[Any, ...]]], rules: Rules) -> None:
    live, model = Bodies(rules), Model(rules)
    stored: dict[bytes, bytes] = {}
    pages = Pages(live)
    for batch in found:
        restored = restore(rules, stored)
        outcomes = play(live, batch, model)
        assert [each for each in map(as_model, outcomes) if each] == model.finish()
        check(live, outcomes, model)
        assert play(restored, batch) == outcomes, "a worker that reads the stored state continues differently"
        for name, page in pages.changes():
            if page is None:
                del stored[name]
            else:
                stored[name] = page
        complete = dict(change for change in Pages(restore_all(live)).changes())
        assert stored == complete, "the changes do not add up to the state"


def restore_all(live: Bodies) -> Bodies:
    """Return the operator as one whose pages have never been stored."""
    copy = Bodies(live.settings, live.height, live.queues)
    copy.touched = set(live.queues)
    return copy


def check(bodies: Bodies, outcomes: list[Any], model: Any) -> None:
    """Check what holds after every batch."""
    for outcome in outcomes:
        if isinstance(outcome, Flow):
            assert outcome.unread == model.unread(outcome.sender, outcome.recipient)
        elif isinstance(outcome, QueueStatus):
            queue = model.queue(outcome.recipient)
            assert (outcome.unread, outcome.missing) == (len(queue), sum(not each.held for each in queue))
            assert outcome.front == (queue[0].place if queue else None)
            assert outcome.alarm == (bool(queue) and bodies.height - queue[0].sent_at >= 3)
    for recipient, queue in bodies.queues.items():
        assert queue.order == sorted(queue.entries) == [each.place for each in model.queue(recipient)]
        for name, entry in queue.entries.items():
            assert sum(kept.content.size for kept in entry.kept.values()) <= entry.size
            assert entry.held is None or not entry.kept
            block, acked = queue.watermark
            assert name[0] != block or name[1] not in acked
        for sender in SENDERS:
            assert (
                sum(each.bytes for each in queue.unlisted if each.part.sender == sender)
                <= bodies.settings.unlisted_bytes
            )
        newest = max((sent_at for sent_at, _ in model.acked.get(recipient, ())), default=None)
        if newest is not None:
            assert queue.watermark.block in {newest, newest + 1}
