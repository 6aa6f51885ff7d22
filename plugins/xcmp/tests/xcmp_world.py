# SPDX-License-Identifier: Apache-2.0
"""Senders with histories, and their proofs, built by the definitions of xcmp_rules 1.1 and not by the plugin's code."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

RECIPIENT = 4
OTHERS = (2, 3, 9)
"""Recipients of a sender's other channels."""


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()


def le32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def compact(number: int) -> bytes:
    """Return the SCALE compact encoding of a number below 2**30."""
    assert number < 2**30
    if number < 2**6:
        return (number * 4).to_bytes(1, "little")
    return (number * 4 + 1).to_bytes(2, "little") if number < 2**14 else (number * 4 + 2).to_bytes(4, "little")


def root_and_path(tag: bytes, leaves: list[bytes], index: int) -> tuple[bytes, list[bytes]]:
    """Return a tree's root and the siblings of a leaf."""
    level = [digest(b"\x00" + tag + b"\x01" + leaf) for leaf in leaves]
    size, path = len(level), []
    while len(level) > 1:
        if index ^ 1 < len(level):
            path.append(level[index ^ 1])
        index //= 2
        level = [
            digest(b"\x01" + level[at] + level[at + 1]) if at + 1 < len(level) else level[at]
            for at in range(0, len(level), 2)
        ]
    return digest(b"\x02" + tag + b"\x01" + le32(size) + level[0]), path


@dataclass
class Sender:
    """A sender's channel to the recipient: its messages, and its position among the sender's other channels."""

    para: int
    messages: list[tuple[int, list[bytes]]]
    before: int = 0
    after: int = 0
    links: list[Json] = field(default_factory=list)
    heads: dict[int, bytes] = field(default_factory=dict)
    row: list[tuple[int, int, bytes | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        head, previous = bytes(32), 0
        for block, payloads in self.messages:
            batch = compact(len(payloads)) + b"".join(compact(len(payload)) + payload for payload in payloads)
            self.links.append({"prev_head": head.hex(), "prev_block": previous, "msg_hash": digest(batch).hex()})
            head, previous = digest(head + le32(previous) + digest(batch)), block
        others = [*OTHERS[: self.before], *OTHERS[len(OTHERS) - self.after :]]
        root = None
        if self.messages:
            self.heads = {RECIPIENT: head, **{para: digest(le32(para)) for para in others}}
            root, _ = self.head_path()
        self.row = [(para, 0, None) for para in OTHERS[: self.before]]
        self.row.append((RECIPIENT, previous, root))
        self.row += [(para, previous, root) for para in OTHERS[len(OTHERS) - self.after :]]

    def head_path(self) -> tuple[bytes, list[bytes]]:
        paras = sorted(self.heads)
        leaves = [le32(para) + self.heads[para] for para in paras]
        return root_and_path(b"xcmp/mqr", leaves, paras.index(RECIPIENT))

    def row_path(self) -> tuple[bytes, list[bytes]]:
        leaves = [
            le32(para) + le32(block) + (b"\x00" if root is None else b"\x01" + root) for para, block, root in self.row
        ]
        return root_and_path(b"xcmp/cst", leaves, self.before)

    def proof(self, old: list[int] | None, new: list[int]) -> Json:
        """Return the recipient's proof about this sender."""
        _, last_updated, message_root = self.row[self.before]
        unread = [(at, block) for at, (block, _) in enumerate(self.messages) if old is None or [block, self.para] > old]
        mq = None
        if unread:
            paras = sorted(self.heads)
            mq = {
                "index": paras.index(RECIPIENT),
                "size": len(paras),
                "head": self.heads[RECIPIENT].hex(),
                "path": [sibling.hex() for sibling in self.head_path()[1]],
            }
        return {
            "cst": {
                "index": self.before,
                "size": len(self.row),
                "last_updated": last_updated,
                "message_root": None if message_root is None else message_root.hex(),
                "path": [sibling.hex() for sibling in self.row_path()[1]],
            },
            "mq": mq,
            "links": [self.links[at] for at, _ in reversed(unread)],
            "bodies": {
                str(block): [payload.hex() for payload in self.messages[at][1]]
                for at, block in unread
                if [block, self.para] <= new
            },
        }


def entry_of(senders: list[Sender], old: list[int] | None, new: list[int], relay_parent_number: int) -> Json:
    """Return an entry of group ``pov`` with a complete proof and its result."""
    return {
        "context": {
            "recipient": RECIPIENT,
            "relay_parent_number": relay_parent_number,
            "old_watermark": old,
            "new_watermark": new,
            "senders": [sender.para for sender in senders],
            "cst_roots": {str(sender.para): sender.row_path()[0].hex() for sender in senders},
        },
        "proof": {str(sender.para): sender.proof(old, new) for sender in senders},
        "expect": {
            "ok": True,
            "messages": sorted(
                [block, sender.para, [payload.hex() for payload in payloads]]
                for sender in senders
                for block, payloads in sender.messages
                if (old is None or [block, sender.para] > old) and [block, sender.para] <= new
            ),
        },
    }


@st.composite
def accounts(draw: st.DrawFn) -> tuple[list[Sender], Json]:
    """Draw senders, and an entry of group ``pov`` whose proof about them is complete."""
    payloads = st.lists(st.binary(max_size=3), max_size=3)
    senders = []
    for para in draw(st.lists(st.integers(1, 8).filter(lambda para: para != RECIPIENT), max_size=4, unique=True)):
        blocks = sorted(draw(st.sets(st.integers(1, 9), max_size=4)))
        before, after = draw(st.sampled_from([(0, 0), (1, 0), (0, 1), (1, 2), (2, 1)]))
        senders.append(Sender(para, [(block, draw(payloads)) for block in blocks], before, after))
    marks = st.tuples(st.integers(0, 10), st.sampled_from([0, 1, 3, 5, 8, 2**32 - 1])).map(list)
    old = draw(st.none() | marks)
    new = draw(marks if old is None else marks.filter(lambda mark: mark >= old))
    return senders, entry_of(senders, old, new, draw(st.integers(new[0], 11)))


def entries() -> st.SearchStrategy[Json]:
    """Draw an entry of group ``pov`` whose proof is complete."""
    return accounts().map(lambda drawn: drawn[1])
