# SPDX-License-Identifier: Apache-2.0
"""Chooses how a node is spoken to: by the older methods, or by `chainHead_v1` and `archive_v1`."""

from __future__ import annotations

from functools import partial

from validator_relay_chain.connection import Connection, Wire
from validator_relay_chain.errors import RpcFault, passing_first
from validator_relay_chain.modern import ModernConnection


def open_wire(url: str) -> Wire:
    """Connect to a node, whichever methods it has. Raises `NodeError`.

    Those of `chain_*` and `state_*` come first, with heads that are asked for if it does not notify of them, then those of `chainHead_v1`
    and `archive_v1`.
    """
    refusals: list[RpcFault] = []
    for open_ in (
        partial(Connection, url),
        partial(Connection, url, is_subscribed=False),
        partial(ModernConnection, url),
    ):
        try:
            return open_()
        except RpcFault as error:
            refusals.append(error)
    refusal = passing_first(refusals)
    raise refusal.saying(f"{refusal}; the node offers neither chain_* and state_* nor chainHead_v1 or archive_v1")
