# SPDX-License-Identifier: Apache-2.0
"""The plugin passes the contract of handler plugins."""

from __future__ import annotations

from pathlib import Path

import validator_hrmp_calls
from validator_hrmp_calls import AcceptOpenChannel, CloseChannel, InitOpenChannel, encode

from validator.testing import Example, HandlerContract, Harness

REQUEST = encode(InitOpenChannel(2001, 8, 1024))
ACCEPT = encode(AcceptOpenChannel(2000))
CLOSE = encode(CloseChannel(2000, 2001))


def request(chain: Harness) -> None:
    """Bring a chain to a state with a waiting request."""
    chain.send(REQUEST)


def open_channel(chain: Harness) -> None:
    """Bring a chain to a state with an open channel."""
    chain.send(REQUEST)
    chain.send(ACCEPT, para=2001)
    chain.change_session()


class TestHrmpCalls(HandlerContract):
    plugin = validator_hrmp_calls
    examples = (
        REQUEST,
        Example(ACCEPT, para=2001, setup=request),
        Example(CLOSE, setup=open_channel),
        Example(CLOSE, para=2001, setup=open_channel),
    )
    readme = Path(__file__).parents[1] / "README.md"
