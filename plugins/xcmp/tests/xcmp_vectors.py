# SPDX-License-Identifier: Apache-2.0
"""The suite's vectors, by the definitions of xcmp_rules 1.1. They are computed with `xcmp_world`, never with the program."""

from __future__ import annotations

from copy import deepcopy

from xcmp_forgeries import FORGERIES, refused, world
from xcmp_world import RECIPIENT, Json, Sender, compact, digest, entry_of, le32, root_and_path

ZERO = "00" * 32
HEADS = {"2": "e8" * 32, "7": "cb" * 32, "4": "00" * 32, "100000": "ff" * 32}


def vectors_document() -> Json:
    """Return the document."""
    return {
        "format": "xcmp-vectors/1",
        "hash": "BLAKE2b, 32 byte digest, no key; SCALE little endian",
        "msg_hash": [
            {"payload": payload.hex(), "hash": digest(compact(len(payload)) + payload).hex()}
            for payload in (b"", b"a", b"x" * 63, b"x" * 64, b"x" * 300)
        ],
        "batch_hash": [
            {"payloads": [payload.hex() for payload in batch], "hash": digest(scale(batch)).hex()}
            for batch in ([], [b""], [b"", b""], [b"a", b"b"], [b"ab"], [b"x"] * 64)
        ],
        "hrmp_link": [
            {"prev_head": head, "block": block, "msg_hash": "ab" * 32, "head": link(head, block, "ab" * 32)}
            for head, block in ((ZERO, 6), ("01" * 32, 2**32 - 1))
        ],
        "xcmp_link": [
            {"prev_head": head, "prev_block": block, "msg_hash": "ab" * 32, "head": link(head, block, "ab" * 32)}
            for head, block in ((ZERO, 0), ("01" * 32, 5))
        ],
        "cst_root": [_cst_root(columns) for columns in range(6)],
        "mq_root": [_mq_root(dict(list(HEADS.items())[:count])) for count in range(5)],
        "msg_root": [
            {
                "payloads": [payload.hex() for payload in batch],
                "root": root(b"xcmp/msg", [scale(payload) for payload in batch]),
            }
            for batch in ([], [b""], [b"a", b"b"], [b"b", b"a"], [b"a", b"b", b"c"], [b"x" * 64] * 5)
        ],
        "proofs": _proofs(),
        "pov": _pov(),
    }


def scale(value: bytes | list[bytes]) -> bytes:
    """Return the SCALE encoding of bytes, or of a list of them."""
    return compact(len(value)) + (value if isinstance(value, bytes) else b"".join(map(scale, value)))


def link(head: str, block: int, hashed: str) -> str:
    """Return the head after a link. Both kinds of chain use these bytes; they differ in the meaning of the block."""
    return digest(bytes.fromhex(head) + le32(block) + bytes.fromhex(hashed)).hex()


def root(tag: bytes, leaves: list[bytes]) -> str:
    """Return a tree's root over its leaves' data."""
    if not leaves:
        return digest(b"\x02" + tag + b"\x01" + le32(0) + digest(b"")).hex()
    return root_and_path(tag, leaves, 0)[0].hex()


def _cst_root(count: int) -> Json:
    row = [
        {"recipient": 10 * at + 1, "last_updated": at, "message_root": None if at % 2 == 0 else f"{at:02x}" * 32}
        for at in range(count)
    ]
    leaves = []
    for column in row:
        message_root = column["message_root"]
        option = b"\x00" if message_root is None else b"\x01" + bytes.fromhex(str(message_root))
        leaves.append(le32(int(str(column["recipient"]))) + le32(int(str(column["last_updated"]))) + option)
    return {"row": row, "root": root(b"xcmp/cst", leaves)}


def _mq_root(heads: dict[str, str]) -> Json:
    leaves = [le32(para) + bytes.fromhex(heads[str(para)]) for para in sorted(map(int, heads))]
    return {"heads": heads, "root": root(b"xcmp/mqr", leaves)}


def _proofs() -> list[Json]:
    data = [bytes((at,)) for at in range(7)]
    proofs: list[Json] = []
    for tag in ("xcmp/cst", "xcmp/mqr", "xcmp/msg"):
        for size in (1, 2, 3, 5, 7):
            for index in range(size):
                top, path = root_and_path(tag.encode(), data[:size], index)
                leaf = digest(b"\x00" + tag.encode() + b"\x01" + data[index]).hex()
                siblings = [sibling.hex() for sibling in path]
                proofs.append(
                    {
                        "tag": tag,
                        "leaf": leaf,
                        "index": index,
                        "size": size,
                        "path": siblings,
                        "root": top.hex(),
                        "ok": True,
                    }
                )
    good = proofs[7]  # the second of five leaves
    wrong: list[Json] = [
        {"index": 0},
        {"index": 5},
        {"index": -1},
        {"index": 2**32},
        {"index": "1"},
        {"index": None},
        {"size": 4},
        {"size": 6},
        {"size": 0},
        {"size": 1.0},
        {"tag": "xcmp/msg"},
        {"tag": "xcmp/xyz"},
        {"tag": None},
        {"leaf": ZERO},
        {"leaf": "00"},
        {"root": ZERO},
        {"root": []},
        {"path": good["path"][:-1]},
        {"path": [*good["path"], ZERO]},
        {"path": good["path"][::-1]},
        {"path": [ZERO] * 33},
        {"path": "".join(good["path"])},
        {"path": [None]},
        {"path": {}},
    ]
    return [*proofs, *({**good, **change, "ok": False} for change in wrong)]


def _pov() -> list[Json]:
    entries: list[tuple[str, Json]] = [("complete", world())]
    for name, senders, old, new in (
        ("nobody sends", [], None, [0, 0]),
        ("nothing was sent", [Sender(1, [], 1, 1)], None, [9, 0]),
        (
            "everything, and no watermark before",
            [Sender(1, [(2, [b"a"]), (3, [])]), Sender(6, [(2, [b"b"])])],
            None,
            [9, 0],
        ),
        ("everything is read", [Sender(1, [(2, [b"a"])])], [2, 1], [9, 0]),
        ("the watermark stays", [Sender(1, [(2, [b"a"]), (5, [b"b"])])], [2, 1], [2, 1]),
        (
            "inside a block",
            [Sender(1, [(5, [b"a"])]), Sender(6, [(5, [b"b"])]), Sender(7, [(5, [b"c"])])],
            [5, 1],
            [5, 6],
        ),
    ):
        entries.append((name, entry_of(senders, old, new, 10)))
    result = [{"id": f"pov/{at:02}", "name": name, **entry} for at, (name, entry) in enumerate(entries)]
    for at, (name, change, expected) in enumerate(FORGERIES, start=len(result)):
        entry = deepcopy(world())
        change(entry)
        result.append({"id": f"pov/{at:02}", "name": name, **entry, "expect": expected})
    result.append({"id": f"pov/{len(result):02}", "name": "heights that do not decrease", **_not_decreasing()})
    return result


def _not_decreasing() -> Json:
    """Return a proof of a chain that only its sender can make: both messages have the same height."""
    sender = Sender(1, [(5, [b"a"]), (5, [b"b"])])
    entry = entry_of([sender], None, [9, 0], 10)
    assert entry["context"]["recipient"] == RECIPIENT
    return {**entry, "expect": refused("Pov/BlocksNotDecreasing", sender=1, depth=0)}
