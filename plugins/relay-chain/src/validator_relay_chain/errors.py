# SPDX-License-Identifier: Apache-2.0
"""Why a relay chain cannot be followed: each error is one line that names the node, what was expected and what was found."""

from __future__ import annotations

from typing import Final


class FollowError(Exception):
    """The root of what is expected to go wrong."""


class NodeError(FollowError):
    """A node failed to answer a call."""


class Unreachable(NodeError):
    """No connection, a connection that was dropped, or no answer in time."""


class RateLimited(NodeError):
    """The node refuses calls for a while."""


class StatePruned(NodeError):
    """The node does not have the state of this block any more: only an archive node does."""


class NotKnownHere(NodeError):
    """The node answers null: it does not know the block, or not yet. The block may exist."""


class BadAnswer(NodeError):
    """The node's answer contradicts a hash, the order of blocks, or the protocol."""


class WrongChain(NodeError):
    """The node follows a chain with another genesis."""


class RpcFault(NodeError):
    """The node answers with an error. ``code`` is a number of JSON-RPC."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class UndecodableBlock(FollowError):
    """A block does not decode with the metadata of its runtime."""


class ChainContradiction(FollowError):
    """What a block says contradicts itself or what was followed so far: the lane must not continue."""


class RulesWanted(FollowError):
    """The next block runs under rules that the lane's configuration lacks."""


class SeedError(FollowError):
    """A state to begin with cannot be read, or contradicts the block's state root."""


REASONS: Final[tuple[tuple[type[NodeError], str], ...]] = (
    (RateLimited, "rate-limited"),
    (StatePruned, "pruned"),
    (Unreachable, "unreachable"),
    (NotKnownHere, "not-known"),
    (BadAnswer, "wrong-answer"),
)
"""Why a request is repeated; the node's own errors are the rest."""

OTHER: Final = "refused"


def reason_of(error: NodeError) -> str:
    """Return why a request is repeated, as the metric names it."""
    return next((name for kind, name in REASONS if isinstance(error, kind)), OTHER)
