# SPDX-License-Identifier: Apache-2.0
"""The document format of proofs: `validator prove` and `validator verify`, proofs from JSON, and test vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from validator.plugin.protocol_api import ZERO_HASH, BlockNumber, Hash, Node, ParaId
from validator_xcmp.errors import PovError
from validator_xcmp.limits import (
    PROOF_BODY_BYTES_MAX,
    PROOF_BODY_PAYLOADS_MAX,
    PROOF_LINKS_MAX,
    PROOF_PATH_HASHES_MAX,
)
from validator_xcmp.merkle import (
    CST,
    HASH_SIZE,
    TAGS,
    Path,
    batch_hash,
    cst_leaf,
    hrmp_link,
    message_hash,
    mq_root,
    msg_root,
    row_root,
    tree_root,
    verify,
    xcmp_link,
)
from validator_xcmp.proofs import (
    HashBatch,
    HeadProof,
    Link,
    ProcessingContext,
    RowProof,
    SenderHistory,
    SenderProof,
    prove_head,
    prove_payload,
    prove_processing,
    prove_row,
    verify_head,
    verify_payload,
    verify_processing,
    verify_row,
)
from validator_xcmp.state import Column
from validator_xcmp.traces import read_watermark

# --- proof json -----------------------------------------------------------------------------------------------------------------------
# Proofs as JSON, in the shape of the test vectors.
#
# Input is hostile, and reading never fails. A malformed part becomes a value that proves nothing: an empty hash, an index of -1, or an
# object that is not a link or body. Verification then rejects it with the error of that part.


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


# --- proof documents ------------------------------------------------------------------------------------------------------------------


PROCESSING: Final = "processing"
ROW_REFUSED: Final = "Row/ProofInvalid"
HEAD_REFUSED: Final = "Head/ProofInvalid"
PAYLOAD_REFUSED: Final = "Payload/ProofInvalid"

_CONTEXT_KEYS: Final = (
    *("recipient", "relay_parent_number", "old_watermark", "new_watermark", "senders", "cst_roots"),
)
_HISTORY_KEYS: Final = ("row", "heads", "messages", "base_head", "base_block")


def prove_document(kind: str, document: Node, hash_batch: HashBatch = batch_hash) -> dict[str, Any]:
    """Return a proof and the trusted values that verify it; ``kind`` is one of `KINDS`. Raises `validator.errors.UserError`."""
    return _prove_processing(document, hash_batch) if kind == PROCESSING else _PROVE[kind](document)


def verify_document(kind: str, document: Node, hash_batch: HashBatch = batch_hash) -> dict[str, Any]:
    """Return whether a proof holds and what it proves. Raises `validator.errors.UserError` only for malformed trusted values."""
    return processing_result(document, hash_batch) if kind == PROCESSING else _VERIFY[kind](document)


# --- rows, message roots, logical messages -----------------------------------------------------------------------------------------------


def _prove_row(document: Node) -> dict[str, Any]:
    document.refuse_misspelt(("row", "index"))
    row = read_row(document["row"])
    index = _index(document["index"], len(row))
    proof = show_row_proof(prove_row(row, index))
    return {"root": row_root(row).hex(), "recipient": row[index].recipient, "proof": proof}


def _verify_row(document: Node) -> dict[str, Any]:
    root, recipient = document["root"].hex(HASH_SIZE), document["recipient"].integer()
    proof = read_row_proof(document.object().get("proof"))
    if not verify_row(root, recipient, proof):
        return _refused(ROW_REFUSED)
    shown = show_row_proof(proof)
    return {"ok": True, "last_updated": shown["last_updated"], "message_root": shown["message_root"]}


def _prove_head(document: Node) -> dict[str, Any]:
    document.refuse_misspelt(("heads", "recipient"))
    heads, recipient = read_hashes_by_para(document["heads"]), document["recipient"].integer()
    if recipient not in heads:
        raise document["recipient"].fail("a para that has a head")
    return {
        "root": mq_root(heads).hex(),
        "recipient": recipient,
        "proof": show_head_proof(prove_head(heads, recipient)),
    }


def _verify_head(document: Node) -> dict[str, Any]:
    root, recipient = document["root"].hex(HASH_SIZE), document["recipient"].integer()
    proof = read_head_proof(document.object().get("proof"))
    return {"ok": True, "head": proof.head.hex()} if verify_head(root, recipient, proof) else _refused(HEAD_REFUSED)


def _prove_payload(document: Node) -> dict[str, Any]:
    document.refuse_misspelt(("payloads", "index"))
    payloads = _payloads(document["payloads"])
    index = _index(document["index"], len(payloads))
    proof = show_payload_proof(payloads[index], prove_payload(payloads, index))
    return {"root": msg_root(payloads).hex(), "proof": proof}


def _verify_payload(document: Node) -> dict[str, Any]:
    root = document["root"].hex(HASH_SIZE)
    payload, path = read_payload_proof(document.object().get("proof"))
    if payload is None or not verify_payload(root, payload, path):
        return _refused(PAYLOAD_REFUSED)
    return {"ok": True, "index": path.index, "size": path.size, "payload": payload.hex()}


# --- proof of processing -----------------------------------------------------------------------------------------------------------------


def _prove_processing(document: Node, hash_batch: HashBatch) -> dict[str, Any]:
    """Return the proof with its full context. Roots that the document leaves out are computed from the senders' rows."""
    document.refuse_misspelt(("context", "histories"))
    given, described = document["context"], document["histories"]
    recipient = given["recipient"].integer()
    named = {read_para(name, history): history for name, history in described.members()}
    histories = {sender: _history(history, recipient) for sender, history in named.items()}
    context = read_context(given, {sender: row_root(history.row) for sender, history in histories.items()})
    for sender, history in named.items():
        if sender not in context.senders:
            raise history.fail("nothing, as this is none of the context's senders")
    for sender in context.senders:
        if sender not in histories:
            raise described.fail(f"a history of sender {sender}")
        if recipient not in histories[sender].heads and _has_unread(context, sender, histories[sender]):
            raise named[sender].fail(f"heads with one of recipient {recipient}, for whom something is unread")
    proof = prove_processing(context, histories, hash_batch)
    try:
        verify_processing(context, proof, hash_batch)
    except PovError as error:  # never print a proof that would be rejected
        raise Node(str(error), document.path).fail("histories whose proof holds") from None
    return {"context": show_context(context), "proof": show_processing_proof(proof)}


def processing_result(document: Node, hash_batch: HashBatch = batch_hash) -> dict[str, Any]:
    """Return the result of ``{context, proof}`` in the test vectors' shape. Raises `validator.errors.UserError`."""
    context = read_context(document["context"])
    try:
        messages = verify_processing(context, read_processing_proof(document.object().get("proof")), hash_batch)
    except PovError as error:
        return _refused(error.kind, **error.details())
    shown = [[block, sender, [payload.hex() for payload in payloads]] for block, sender, payloads in messages]
    return {"ok": True, "messages": shown}


def _has_unread(context: ProcessingContext, sender: ParaId, history: SenderHistory) -> bool:
    column = next(column for column in history.row if column.recipient == context.recipient)
    old = context.old_watermark
    return column.message_root is not None and (old is None or (column.last_updated, sender) > old)


def _history(node: Node, recipient: ParaId) -> SenderHistory:
    node.refuse_misspelt(_HISTORY_KEYS)
    row = read_row(node["row"])
    if all(column.recipient != recipient for column in row):
        raise node["row"].fail(f"columns with one to recipient {recipient}")
    base_block = node.get("base_block", Node.integer, 0)
    messages = node.get("messages", _messages, ())
    previous = base_block
    for at, (block, _) in enumerate(messages):
        if block <= previous:
            raise Node(block, f"{node.path}.messages[{at}].block").fail(f"a block after {previous}")
        previous = block
    return SenderHistory(
        row=row,
        heads=node.get("heads", read_hashes_by_para, {}),
        messages=messages,
        base_head=node.get("base_head", _hash, ZERO_HASH),
        base_block=base_block,
    )


def _messages(node: Node) -> tuple[tuple[BlockNumber, tuple[bytes, ...]], ...]:
    return tuple((message["block"].integer(), _payloads(message["payloads"])) for message in node.items())


# --- trusted values ----------------------------------------------------------------------------------------------------------------------


def read_context(node: Node, cst_roots: Mapping[ParaId, Hash] | None = None) -> ProcessingContext:
    """Read a context; ``cst_roots`` are the default if it has none. Raises `validator.errors.UserError`."""
    node.refuse_misspelt(_CONTEXT_KEYS)
    if cst_roots is None or node.has("cst_roots"):
        cst_roots = read_hashes_by_para(node["cst_roots"])
    return ProcessingContext(
        recipient=node["recipient"].integer(),
        relay_parent_number=node["relay_parent_number"].integer(),
        old_watermark=node.get("old_watermark", read_watermark, None),
        new_watermark=read_watermark(node["new_watermark"]),
        senders=tuple(sender.integer() for sender in node["senders"].items()),
        cst_roots=cst_roots,
    )


def show_context(context: ProcessingContext) -> dict[str, Any]:
    """Return a context as JSON, the inverse of `read_context`."""
    old = context.old_watermark
    return {
        "recipient": context.recipient,
        "relay_parent_number": context.relay_parent_number,
        "old_watermark": None if old is None else list(old),
        "new_watermark": list(context.new_watermark),
        "senders": list(context.senders),
        "cst_roots": {str(sender): root.hex() for sender, root in context.cst_roots.items()},
    }


def read_row(node: Node) -> list[Column]:
    """Read columns from ``[{recipient, last_updated, message_root}]`` with unique recipients. Raises `UserError`."""
    row: dict[ParaId, Column] = {}
    for column in node.items():
        recipient = column["recipient"].integer()
        if recipient in row:
            raise column["recipient"].fail("a recipient that no column before has")
        last_updated, root = column["last_updated"].integer(), column.get("message_root", _hash, None)
        # a root does not cover a column's capacity and deposits
        row[recipient] = Column(recipient, 0, 0, 0, last_updated, root)
    return list(row.values())


def read_hashes_by_para(node: Node) -> dict[ParaId, Hash]:
    """Read hashes from ``{para: hash}``. Raises `validator.errors.UserError`."""
    return {read_para(name, value): value.hex(HASH_SIZE) for name, value in node.members()}


def read_para(name: str, member: Node) -> ParaId:
    """Parse a para id from an object's key, in decimal without leading zeros. Raises `UserError`."""
    decimal = name.isascii() and name.isdecimal() and len(name) <= 10 and (name == "0" or name[0] != "0")
    return Node(int(name) if decimal else name, member.path).integer()


def _hash(node: Node) -> Hash:
    return node.hex(HASH_SIZE)


def _payloads(node: Node) -> tuple[bytes, ...]:
    return tuple(payload.hex() for payload in node.items())


def _index(node: Node, count: int) -> int:
    index = node.integer()
    if index >= count:
        raise node.fail(f"the index of one of {count}")
    return index


def _refused(kind: str, **fields: int) -> dict[str, Any]:
    return {"ok": False, "error": {"kind": kind, **fields}}


_PROVE: Final[dict[str, Callable[[Node], dict[str, Any]]]] = {
    "row": _prove_row,
    "head": _prove_head,
    "payload": _prove_payload,
}
_VERIFY: Final[dict[str, Callable[[Node], dict[str, Any]]]] = {
    "row": _verify_row,
    "head": _verify_head,
    "payload": _verify_payload,
}
KINDS: Final = (*_PROVE, PROCESSING)
"""The kinds of proof."""


# --- vectors --------------------------------------------------------------------------------------------------------------------------
# Test vectors of format ``xcmp-vectors/1``: groups of entries, each recomputed only from its inputs. See `docs/trace-format.md`.
#
# Malformed inputs raise `validator.errors.UserError`. Only a proof's claims are hostile: a malformed one is read as a value that proves
# nothing.


VECTOR_FORMAT: Final = "xcmp-vectors/1"


def vectors(document: Node) -> dict[str, list[dict[str, Any]]]:
    """Return the results of all entries of a document, by group. Raises `validator.errors.UserError`."""
    return {
        group: [vector_result(group, entry) for entry in entries.items()]
        for group, entries in document.members()
        if isinstance(entries.value, list)
    }


def vector_result(group: str, entry: Node) -> dict[str, Any]:
    """Return the result of one entry of a group. Raises `validator.errors.UserError`, also for an unknown group."""
    if group not in GROUPS:
        raise entry.fail(f"an entry of one of {', '.join(GROUPS)}")
    return GROUPS[group](entry)


def _msg_hash(entry: Node) -> dict[str, Any]:
    return {"hash": message_hash(entry["payload"].hex()).hex()}


def _batch_hash(entry: Node) -> dict[str, Any]:
    return {"hash": batch_hash([payload.hex() for payload in entry["payloads"].items()]).hex()}


def _hrmp_link(entry: Node) -> dict[str, Any]:
    head = hrmp_link(entry["prev_head"].hex(HASH_SIZE), entry["block"].integer(), entry["msg_hash"].hex(HASH_SIZE))
    return {"head": head.hex()}


def _xcmp_link(entry: Node) -> dict[str, Any]:
    head = xcmp_link(entry["prev_head"].hex(HASH_SIZE), entry["prev_block"].integer(), entry["msg_hash"].hex(HASH_SIZE))
    return {"head": head.hex()}


def _cst_root(entry: Node) -> dict[str, Any]:
    leaves = [
        cst_leaf(
            column["recipient"].integer(),
            column["last_updated"].integer(),
            column.get("message_root", lambda root: root.hex(HASH_SIZE), None),
        )
        for column in entry["row"].items()
    ]
    return {"root": tree_root(CST, leaves).hex()}


def _mq_root(entry: Node) -> dict[str, Any]:
    return {"root": mq_root(read_hashes_by_para(entry["heads"])).hex()}


def _msg_root(entry: Node) -> dict[str, Any]:
    return {"root": msg_root([payload.hex() for payload in entry["payloads"].items()]).hex()}


def _proof(entry: Node) -> dict[str, Any]:
    claim = entry.object()
    tag = str(claim.get("tag")).encode()
    ok = tag in TAGS and verify(tag, read_hash(claim.get("root")), read_hash(claim.get("leaf")), read_path(claim))
    return {"ok": ok}


def _pov(entry: Node) -> dict[str, Any]:
    return processing_result(entry)


GROUPS: Final[dict[str, Callable[[Node], dict[str, Any]]]] = {
    "msg_hash": _msg_hash,
    "batch_hash": _batch_hash,
    "hrmp_link": _hrmp_link,
    "xcmp_link": _xcmp_link,
    "cst_root": _cst_root,
    "mq_root": _mq_root,
    "msg_root": _msg_root,
    "proofs": _proof,
    "pov": _pov,
}
