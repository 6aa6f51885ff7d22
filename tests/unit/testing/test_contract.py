# SPDX-License-Identifier: Apache-2.0
"""A plugin in good order keeps every point of the contract."""

from __future__ import annotations

from typing import ClassVar

from tests.unit.testing import remark
from validator.testing import Example, HandlerContract

ASK = b"\x00\x02" + (2001).to_bytes(4, "little")


class TestRemark(HandlerContract):
    plugin = remark
    config: ClassVar = {"copy_to": 2001}
    examples = (
        b"\x00\x01hello",
        Example(b"\x00\x01again", para=2001, setup=lambda chain: chain.send(b"\x00\x01hello")),
        ASK,
    )
