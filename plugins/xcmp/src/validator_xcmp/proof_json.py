# SPDX-License-Identifier: Apache-2.0
"""Proofs as JSON, in the shape of the test vectors.

What comes here is hostile: reading never fails. A part that is malformed becomes a value that proves nothing (a hash of no bytes, an index
of -1, a link or body that is none), so that verification refuses it for the reason that this part has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from validator.plugin.api import Hash, ParaId
from validator_xcmp.limits import PROOF_BODY_BYTES_MAX, PROOF_BODY_PAYLOADS_MAX, PROOF_LINKS_MAX, PROOF_PATH_HASHES_MAX
from validator_xcmp.merkle import Path
from validator_xcmp.proofs import HeadProof, Link, RowProof, SenderProof

_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")
_U32: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_NO_HASH: Final = b""
_NO_NUMBER: Final = -1
_NO_PATH: Final = Path(_NO_NUMBER, _NO_NUMBER, ())
_NO_LINK: Final = Link(_NO_HASH, _NO_NUMBER, _NO_HASH)


def read_processing_proof(value: object) -> dict[ParaId, SenderProof | None]:
    """Return the proof of processing of ``{sender: {cst, mq, links, bodies}}``, None for a part that is no object.

    A member that names no para gets a number below zero: it counts as a sender that has no column.
    """
    if not isinstance(value, dict):
        return {}
    proof: dict[ParaId, SenderProof | None] = {}
    for name, part in value.items():
        sender = _key(name)
        proof[sender if sender >= 0 else -1 - len(proof)] = _sender(part) if isinstance(part, dict) else None
    return proof


def show_processing_proof(proof: Mapping[ParaId, SenderProof | None]) -> dict[str, Any]:
    """Return a proof of processing as JSON, such that `read_processing_proof` gives it back."""
    return {str(sender): None if part is None else _show_sender(part) for sender, part in proof.items()}


def _show_sender(part: SenderProof) -> dict[str, Any]:
    row, head = part.row, part.head
    return {
        "cst": {
            "last_updated": row.last_updated,
            "message_root": None if row.message_root is None else row.message_root.hex(),
            **show_path(row.path),
        },
        "mq": None if head is None else {"head": head.head.hex(), **show_path(head.path)},
        "links": [
            {"prev_head": link.prev_head.hex(), "prev_block": link.prev_block, "msg_hash": link.msg_hash.hex()}
            for link in part.links
        ],
        "bodies": {str(block): [payload.hex() for payload in payloads] for block, payloads in part.bodies.items()},
    }


def show_path(path: Path) -> dict[str, Any]:
    """Return a path as ``{index, size, path}``."""
    return {"index": path.index, "size": path.size, "path": [sibling.hex() for sibling in path.siblings]}


def read_path(value: object) -> Path:
    """Return the path of ``{index, size, path}``."""
    if not isinstance(value, dict) or not isinstance(value.get("path"), list):
        return _NO_PATH
    # one hash more than there may be is as wrong as any number of them
    siblings = tuple(map(read_hash, value["path"][: PROOF_PATH_HASHES_MAX + 1]))
    return Path(_number(value.get("index")), _number(value.get("size")), siblings)


def read_hash(value: object) -> Hash:
    """Return 32 bytes of hex, or none of them."""
    data = _bytes(value, 32)
    return _NO_HASH if data is None else data


def _sender(part: dict[str, Any]) -> SenderProof:
    links, bodies = part.get("links", []), part.get("bodies", {})
    return SenderProof(
        _row(part.get("cst")),
        _head(part.get("mq")),
        tuple(map(_link, links[: PROOF_LINKS_MAX + 1])) if isinstance(links, list) else (_NO_LINK,),
        _bodies(bodies) if isinstance(bodies, dict) else {_NO_NUMBER: ()},
    )


def _row(value: object) -> RowProof:
    if not isinstance(value, dict):
        return RowProof(_NO_NUMBER, None, _NO_PATH)
    root = value.get("message_root", "")
    return RowProof(_number(value.get("last_updated")), None if root is None else read_hash(root), read_path(value))


def _head(value: object) -> HeadProof | None:
    if value is None:
        return None
    return (
        HeadProof(read_hash(value.get("head")), read_path(value))
        if isinstance(value, dict)
        else HeadProof(_NO_HASH, _NO_PATH)
    )


def _link(value: object) -> Link:
    if not isinstance(value, dict):
        return _NO_LINK
    return Link(read_hash(value.get("prev_head")), _number(value.get("prev_block")), read_hash(value.get("msg_hash")))


def _bodies(value: dict[str, Any]) -> dict[int, Any]:
    bodies: dict[int, Any] = {}
    for name, payloads in value.items():
        block = _key(name)
        bodies[block if block >= 0 else -1 - len(bodies)] = _body(payloads)
    return bodies


def _body(value: object) -> tuple[bytes, ...] | bytes:
    """Return the payloads, or bytes, which are no body, where they are malformed or more than may be."""
    if not isinstance(value, list) or len(value) > PROOF_BODY_PAYLOADS_MAX:
        return b""
    if sum(len(payload) for payload in value if isinstance(payload, str)) > 2 * PROOF_BODY_BYTES_MAX:
        return b""
    payloads = [_bytes(payload) for payload in value]
    return b"" if None in payloads else tuple(payload for payload in payloads if payload is not None)


def _key(name: str) -> int:
    return int(name) if isinstance(name, str) and _U32.fullmatch(name) else _NO_NUMBER


def _number(value: object) -> int:
    return value if type(value) is int else _NO_NUMBER


def _bytes(value: object, size: int | None = None) -> bytes | None:
    if not isinstance(value, str) or (size is not None and len(value) != 2 * size) or not _HEX.fullmatch(value):
        return None
    return bytes.fromhex(value)
