# SPDX-License-Identifier: Apache-2.0
"""The plugin passes the contract of handler plugins."""

from __future__ import annotations

from pathlib import Path

import validator_balances
from validator_balances import TRANSFER_KEEP_ALIVE, encode_transfer

from validator.testing import Example, HandlerContract

DOT = 10_000_000_000


class TestBalances(HandlerContract):
    plugin = validator_balances
    examples = (
        encode_transfer(2001, 2 * DOT),
        encode_transfer(2000, 0),
        encode_transfer(4321, DOT),  # even an unknown para has an account
        Example(encode_transfer(2000, DOT + 1, call_index=TRANSFER_KEEP_ALIVE), para=2002),
    )
    balances = 100 * DOT
    readme = Path(__file__).parents[1] / "README.md"
