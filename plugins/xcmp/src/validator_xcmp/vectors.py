# SPDX-License-Identifier: Apache-2.0
"""Test vectors of format ``xcmp-vectors/1``: groups of entries, each recomputed only from its inputs. See `docs/trace-format.md`.

Malformed inputs raise `validator.errors.UserError`. Only a proof's claims are hostile: a malformed one is read as a value that proves
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from validator.plugin.protocol_api import Node
from validator_xcmp.commitments import batch_hash, cst_leaf, hrmp_link, message_hash, mq_root, msg_root, xcmp_link
from validator_xcmp.merkle import CST, HASH_SIZE, TAGS, tree_root, verify
from validator_xcmp.proof_documents import processing_result, read_hashes_by_para
from validator_xcmp.proof_json import read_hash, read_path

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
