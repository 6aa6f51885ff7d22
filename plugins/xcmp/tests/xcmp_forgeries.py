# SPDX-License-Identifier: Apache-2.0
"""A complete proof of processing, and its possible forgeries, each with the expected error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xcmp_world import Json, Sender, entry_of


def refused(kind: str, **fields: int) -> Json:
    """Return a rejection in the vectors' shape."""
    return {"ok": False, "error": {"kind": kind, **fields}}


def world() -> Json:
    """Return a complete proof: para 1 sent four messages, the first read, the last not due; para 6 sent one, para 8 none."""
    one = Sender(1, [(3, [b"read"]), (5, [b"x", b""]), (7, [b"y"]), (9, [b"not yet"])], before=1, after=1)
    six = Sender(6, [(5, [b"z"])], before=0, after=2)
    return entry_of([one, six, Sender(8, [])], [4, 0], [7, 5], 10)


DELETED = object()


def _set(path: str, value: Any) -> Callable[[Json], None]:
    def change(entry: Json) -> None:
        *way, last = path.split(".")
        node: Any = entry
        for name in way:
            node = node[int(name)] if isinstance(node, list) else node[name]
        if value is DELETED:
            del node[int(last) if isinstance(node, list) else last]
        else:
            node[int(last) if isinstance(node, list) else last] = value(node) if callable(value) else value

    return change


FORGERIES: list[tuple[str, Any, Json]] = [
    ("ahead of the relay parent", _set("context.relay_parent_number", 6), refused("Pov/AheadRelayParent")),
    ("lower than the old one", _set("context.new_watermark", [3, 9]), refused("Pov/Regressed")),
    ("a sender is left out", _set("proof.6", DELETED), refused("Pov/MissingSender", sender=6)),
    ("a sender without messages is left out", _set("proof.8", DELETED), refused("Pov/MissingSender", sender=8)),
    ("a sender is nothing", _set("proof.6", None), refused("Pov/MissingSender", sender=6)),
    ("no proof", _set("proof", None), refused("Pov/MissingSender", sender=1)),
    ("a list", _set("proof", []), refused("Pov/MissingSender", sender=1)),
    ("a sender without a column", _set("proof.5", lambda node: node["6"]), refused("Pov/CstProofInvalid", sender=5)),
    ("a sender of no name", _set("proof.06", lambda node: node["6"]), refused("Pov/CstProofInvalid")),
    ("a sender of no name that is nothing", _set("proof.x", None), refused("Pov/CstProofInvalid")),
    ("no root of the sender's row", _set("context.cst_roots", {}), refused("Pov/CstProofInvalid", sender=1)),
    ("another sender's column", _set("proof.1.cst", lambda node: None), refused("Pov/CstProofInvalid", sender=1)),
    ("an older height", _set("proof.1.cst.last_updated", 7), refused("Pov/CstProofInvalid", sender=1)),
    ("never sent", _set("proof.1.cst.message_root", None), refused("Pov/CstProofInvalid", sender=1)),
    ("a message root of some bytes", _set("proof.1.cst.message_root", "00"), refused("Pov/CstProofInvalid", sender=1)),
    ("another index", _set("proof.1.cst.index", 0), refused("Pov/CstProofInvalid", sender=1)),
    ("another size", _set("proof.1.cst.size", 4), refused("Pov/CstProofInvalid", sender=1)),
    ("a huge index", _set("proof.1.cst.index", 10**30), refused("Pov/CstProofInvalid", sender=1)),
    ("no path", _set("proof.1.cst.path", DELETED), refused("Pov/CstProofInvalid", sender=1)),
    ("a sibling short", _set("proof.1.cst.path.0", DELETED), refused("Pov/CstProofInvalid", sender=1)),
    ("no head", _set("proof.1.mq", None), refused("Pov/MqProofInvalid", sender=1)),
    ("a head of another", _set("proof.1.mq.head", "00" * 32), refused("Pov/MqProofInvalid", sender=1)),
    ("a head that is no hash", _set("proof.1.mq.head", "0x00"), refused("Pov/MqProofInvalid", sender=1)),
    ("a head that is a list", _set("proof.1.mq", []), refused("Pov/MqProofInvalid", sender=1)),
    ("a head of what was never sent", _set("proof.8.mq", {"head": "00" * 32}), refused("Pov/MqProofInvalid", sender=8)),
    ("another message", _set("proof.1.links.0.msg_hash", "00" * 32), refused("Pov/ChainBroken", sender=1, depth=0)),
    ("another height before", _set("proof.1.links.1.prev_block", 4), refused("Pov/ChainBroken", sender=1, depth=1)),
    (
        "another head before",
        _set("proof.1.links.2.prev_head", "00" * 32),
        refused("Pov/ChainBroken", sender=1, depth=2),
    ),
    ("a link is left out", _set("proof.1.links.1", DELETED), refused("Pov/ChainBroken", sender=1, depth=1)),
    ("a link is nothing", _set("proof.1.links.2", None), refused("Pov/ChainBroken", sender=1, depth=2)),
    ("links are no list", _set("proof.1.links", {}), refused("Pov/ChainBroken", sender=1, depth=0)),
    ("the chain is cut", _set("proof.1.links.2", DELETED), refused("Pov/ChainIncomplete", sender=1)),
    ("no chain", _set("proof.6.links", []), refused("Pov/ChainIncomplete", sender=6)),
    (
        "a link too many",
        _set("proof.1.links", lambda node: [*node["links"], node["links"][0]]),
        refused("Pov/ChainOverrun", sender=1, depth=3),
    ),
    ("a link of what was never sent", _set("proof.8.links", [None]), refused("Pov/ChainOverrun", sender=8, depth=0)),
    ("a body is left out", _set("proof.1.bodies.5", DELETED), refused("Pov/BodyMissing", sender=1, block=5)),
    ("no bodies", _set("proof.6.bodies", {}), refused("Pov/BodyMissing", sender=6, block=5)),
    ("bodies are a list", _set("proof.6.bodies", []), refused("Pov/BodyMissing", sender=6, block=5)),
    ("another body", _set("proof.1.bodies.7", ["7a"]), refused("Pov/BodyHashMismatch", sender=1, block=7)),
    ("a payload too many", _set("proof.1.bodies.7", ["79", ""]), refused("Pov/BodyHashMismatch", sender=1, block=7)),
    ("a payload that is no hex", _set("proof.1.bodies.7", ["7 9"]), refused("Pov/BodyHashMismatch", sender=1, block=7)),
    ("a payload that is none", _set("proof.1.bodies.7", [None]), refused("Pov/BodyHashMismatch", sender=1, block=7)),
    ("a body that is text", _set("proof.1.bodies.7", "79"), refused("Pov/BodyHashMismatch", sender=1, block=7)),
    (
        "a body beyond the watermark",
        _set("proof.1.bodies.9", [b"not yet".hex()]),
        refused("Pov/UnexpectedBody", sender=1, block=9),
    ),
    (
        "a body that was read",
        _set("proof.1.bodies.3", [b"read".hex()]),
        refused("Pov/UnexpectedBody", sender=1, block=3),
    ),
    ("a body of a block of no name", _set("proof.1.bodies.05", ["78", ""]), refused("Pov/UnexpectedBody", sender=1)),
    ("a body of what was never sent", _set("proof.8.bodies.5", []), refused("Pov/UnexpectedBody", sender=8, block=5)),
    ("bodies of what was never sent", _set("proof.8.bodies", []), refused("Pov/UnexpectedBody", sender=8)),
]
