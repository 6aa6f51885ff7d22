# SPDX-License-Identifier: Apache-2.0
"""Proofs as JSON, in the shape of the test vectors.

Input is hostile, and reading never fails. A malformed part becomes a value that proves nothing: an empty hash, an index of -1, or an object
that is not a link or body. Verification then rejects it with the error of that part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from validator.plugin.protocol_api import Hash, ParaId
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
    """Read a proof of processing from ``{sender: {cst, mq, links, bodies}}``; a part that is not an object becomes None.

    A key that is not a para id becomes a negative number, so it counts as a sender without a column.
    """
    if not isinstance(value, dict):
        return {}
    proof: dict[ParaId, SenderProof | None] = {}
    for name, part in value.items():
        sender = _key(name)
        proof[sender if sender >= 0 else -1 - len(proof)] = _sender(part) if isinstance(part, dict) else None
    return proof


def show_processing_proof(proof: Mapping[ParaId, SenderProof | None]) -> dict[str, Any]:
    """Return a proof of processing as JSON, the inverse of `read_processing_proof`."""
    return {str(sender): None if part is None else _show_sender(part) for sender, part in proof.items()}


def _show_sender(part: SenderProof) -> dict[str, Any]:
    return {
        "cst": show_row_proof(part.row),
        "mq": None if part.head is None else show_head_proof(part.head),
        "links": [
            {"prev_head": link.prev_head.hex(), "prev_block": link.prev_block, "msg_hash": link.msg_hash.hex()}
            for link in part.links
        ],
        "bodies": {str(block): [payload.hex() for payload in payloads] for block, payloads in part.bodies.items()},
    }


def read_row_proof(value: object) -> RowProof:
    """Read a column's proof from ``{last_updated, message_root, index, size, path}``."""
    if not isinstance(value, dict):
        return RowProof(_NO_NUMBER, None, _NO_PATH)
    root = value.get("message_root", "")
    return RowProof(_number(value.get("last_updated")), None if root is None else read_hash(root), read_path(value))


def show_row_proof(proof: RowProof) -> dict[str, Any]:
    """Return a column's proof as JSON, the inverse of `read_row_proof`."""
    root = None if proof.message_root is None else proof.message_root.hex()
    return {"last_updated": proof.last_updated, "message_root": root, **show_path(proof.path)}


def read_head_proof(value: object) -> HeadProof:
    """Read a head's proof from ``{head, index, size, path}``."""
    if not isinstance(value, dict):
        return HeadProof(_NO_HASH, _NO_PATH)
    return HeadProof(read_hash(value.get("head")), read_path(value))


def show_head_proof(proof: HeadProof) -> dict[str, Any]:
    """Return a head's proof as JSON, the inverse of `read_head_proof`."""
    return {"head": proof.head.hex(), **show_path(proof.path)}


def read_payload_proof(value: object) -> tuple[bytes | None, Path]:
    """Read a payload and its proof from ``{payload, index, size, path}``; a malformed payload becomes None."""
    return _bytes(value.get("payload")) if isinstance(value, dict) else None, read_path(value)


def show_payload_proof(payload: bytes, path: Path) -> dict[str, Any]:
    """Return a payload and its proof as JSON, the inverse of `read_payload_proof`."""
    return {"payload": payload.hex(), **show_path(path)}


def show_path(path: Path) -> dict[str, Any]:
    """Return a path as ``{index, size, path}``."""
    return {"index": path.index, "size": path.size, "path": [sibling.hex() for sibling in path.siblings]}


def read_path(value: object) -> Path:
    """Read a path from ``{index, size, path}``."""
    if not isinstance(value, dict) or not isinstance(value.get("path"), list):
        return _NO_PATH
    # one hash over the limit is already invalid, so the rest need not be read
    siblings = tuple(map(read_hash, value["path"][: PROOF_PATH_HASHES_MAX + 1]))
    return Path(_number(value.get("index")), _number(value.get("size")), siblings)


def read_hash(value: object) -> Hash:
    """Return the 32 bytes of a hex string, or empty bytes if it is malformed."""
    data = _bytes(value, 32)
    return _NO_HASH if data is None else data


def _sender(part: dict[str, Any]) -> SenderProof:
    links, bodies = part.get("links", []), part.get("bodies", {})
    return SenderProof(
        read_row_proof(part.get("cst")),
        None if part.get("mq") is None else read_head_proof(part["mq"]),
        tuple(map(_link, links[: PROOF_LINKS_MAX + 1])) if isinstance(links, list) else (_NO_LINK,),
        _bodies(bodies) if isinstance(bodies, dict) else {_NO_NUMBER: ()},
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
    """Return the payloads. If they are malformed or over the limit, return bytes, which are not a body."""
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
