# SPDX-License-Identifier: Apache-2.0
"""A made-up chain with bodies: what the lane emits and what senders write, as Kafka records in the order of writing."""

from __future__ import annotations

from random import Random

from validator_xcmp_bodies import records
from validator_xcmp_bodies.parts import measure

from validator.codec.encode import Encoder, write
from validator.codec.schemas import schemas
from validator.core.outcomes import Receipt

LANE = "polkadot"
DIGEST = bytes(32)
PARAS = (1, 2, 3, 5)

Named = tuple[str, bytes]
"""Topic and value of a record."""


def event(kind: str, block: int, name: tuple[int, int, int], payloads: list[bytes], index: int = 0) -> Named:
    """Return a record of `ingress-events`; ``name`` is sender, recipient, block of sending."""
    sender, recipient, sent_at = name
    found = measure(payloads)
    datum = {
        "lane": LANE,
        "block": block,
        "index": index,
        "event": kind,
        "recipient": recipient,
        "sender": sender,
        "sent_at": sent_at,
        "root": found.root,
        "size": found.size,
        "runtime_digest": DIGEST,
    }
    return "ingress-events", write(schemas()["validator.IngressEvent"], datum)


def receipt(block: int) -> Named:
    """Return a record of `receipts`."""
    return "receipts", Encoder(LANE, DIGEST).receipt(Receipt(block, block - 1, 0, 0, 0, 0, 0, 0)).value


def body(name: tuple[int, int, int], payloads: list[bytes]) -> list[Named]:
    """Return the records of a body's parts."""
    return [("xcmp.bodies", record.value) for record in records.encode_body(LANE, name, payloads)]


def honest(seed: int, blocks: int = 12, *, acknowledged: bool = True) -> list[Named]:
    """Return a chain whose senders write each body once, after the event that lists it, some of them late, in any order of parts.

    Recipients acknowledge in order what has been written.
    """
    random = Random(seed)
    history: list[Named] = []
    queues: dict[int, list[tuple[tuple[int, int, int], list[bytes]]]] = {para: [] for para in PARAS}
    written: set[tuple[int, int, int]] = set()
    unsent: list[tuple[tuple[int, int, int], list[bytes]]] = []
    for block in range(1, blocks + 1):
        for para in PARAS:
            while acknowledged and queues[para] and queues[para][0][0] in written and random.random() < 0.5:
                name, payloads = queues[para].pop(0)
                history.append(event("acknowledged", block, name, payloads))
            for recipient in PARAS:
                if recipient != para and random.random() < 0.3:
                    payloads = payloads_of(random)
                    name = para, recipient, block
                    history.append(event("queued", block, name, payloads))
                    queues[recipient].append((name, payloads))
                    unsent.append((name, payloads))
        history.append(receipt(block))
        random.shuffle(unsent)
        late = [] if block == blocks else [each for each in unsent if random.random() < 0.2]
        parts = [
            (name, part) for name, payloads in unsent if (name, payloads) not in late for part in body(name, payloads)
        ]
        written |= {name for name, _ in parts}
        unsent = late
        random.shuffle(parts)
        history += [part for _, part in parts]
        for queue in queues.values():
            queue.sort(key=lambda each: (each[0][2], each[0][0]))
    return history


def payloads_of(random: Random) -> list[bytes]:
    """Return the payloads of one body: usually small, sometimes more than a part holds, sometimes the same as another's."""
    draw = random.random()
    if draw < 0.2:
        return [b"the same", b"again"]
    if draw < 0.3:
        return [random.randbytes(300_000), b"end"]
    return [random.randbytes(random.choice((0, 1, 40))) for _ in range(random.randrange(4))]


def hostile(seed: int, blocks: int = 12) -> list[Named]:
    """Return an honest chain with records that nobody should write in between."""
    random = Random(seed)
    history = honest(seed, blocks)
    for _ in range(blocks - 2):
        at = random.randrange(len(history))
        name = random.choice(PARAS), random.choice(PARAS), random.randrange(blocks + 2)
        wrong = random.choice((body(name, payloads_of(random)), [("xcmp.bodies", random.randbytes(30))]))
        history[at:at] = [*wrong, *([history[at]] if history[at][0] == "xcmp.bodies" else [])]
    return history
