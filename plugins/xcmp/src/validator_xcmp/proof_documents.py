# SPDX-License-Identifier: Apache-2.0
"""The documents of `validator prove` and `validator verify`: inputs, trusted values, and proofs.

| kind | input of `prove` | trusted | in the proof | proved |
|---|---|---|---|---|
| ``row`` | ``row``, ``index`` | ``root``, ``recipient`` | ``last_updated``, ``message_root``, path | both |
| ``head`` | ``heads``, ``recipient`` | ``root``, ``recipient`` | ``head``, path | ``head`` |
| ``payload`` | ``payloads``, ``index`` | ``root`` | ``payload``, path | ``payload``, ``index`` of ``size`` |
| ``processing`` | ``context``, ``histories`` | ``context`` | by sender | ``messages`` |

A malformed trusted value is a mistake and raises `validator.errors.UserError`. A proof is hostile input, and reading it never fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from validator.plugin.protocol_api import ZERO_HASH, BlockNumber, Hash, Node, ParaId
from validator_xcmp.commitments import batch_hash, mq_root, msg_root
from validator_xcmp.merkle import HASH_SIZE
from validator_xcmp.pov_errors import PovError
from validator_xcmp.proof_json import (
    read_head_proof,
    read_payload_proof,
    read_processing_proof,
    read_row_proof,
    show_head_proof,
    show_payload_proof,
    show_processing_proof,
    show_row_proof,
)
from validator_xcmp.proofs import (
    HashBatch,
    ProcessingContext,
    SenderHistory,
    prove_head,
    prove_payload,
    prove_processing,
    prove_row,
    verify_head,
    verify_payload,
    verify_processing,
    verify_row,
)
from validator_xcmp.row_trees import row_root
from validator_xcmp.state import Column
from validator_xcmp.traces import read_watermark

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
