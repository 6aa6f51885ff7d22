# SPDX-License-Identifier: Apache-2.0
"""The plugin fulfils the contract of handler plugins and notifies the listener."""

from __future__ import annotations

from pathlib import Path

import validator_beacon

from validator.testing import HandlerContract, Harness

CONFIG = {"listener": 2001}


class TestBeacon(HandlerContract):
    plugin = validator_beacon
    config = CONFIG
    examples = (b"be", b"bee")
    readme = Path(__file__).parents[1] / "README.md"


def test_message_notifies_listener() -> None:
    chain = Harness(validator_beacon, CONFIG, block=7)
    assert chain.send(b"beacon", para=2002).outcome == "ok"
    assert chain.state == {b"\xd2\x07\0\0": b"\x07\0\0\0"}
    assert chain.downward(2001) == [b"\xd2\x07\0\0acon"]
