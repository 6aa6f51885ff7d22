# SPDX-License-Identifier: Apache-2.0
"""The documents of `validator prove` and `validator verify`: those of XCMP channels, with the message root as H(batch).

One commitment then serves both the chain of a channel and the check of a body. Source: xcmp_rules 1.1 "Composed".
"""

from __future__ import annotations

from typing import Any, Final

from validator_xcmp import proof_documents as xcmp
from validator_xcmp.commitments import msg_root

from validator.plugin.protocol_api import Node

KINDS: Final = xcmp.KINDS
"""The kinds of proof."""


def prove_document(kind: str, document: Node) -> dict[str, Any]:
    """Return a proof and the trusted values that verify it; ``kind`` is one of `KINDS`. Raises `validator.errors.UserError`."""
    return xcmp.prove_document(kind, document, msg_root)


def verify_document(kind: str, document: Node) -> dict[str, Any]:
    """Return whether a proof holds and what it proves. Raises `validator.errors.UserError` only for malformed trusted values."""
    return xcmp.verify_document(kind, document, msg_root)
