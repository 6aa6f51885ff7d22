# SPDX-License-Identifier: Apache-2.0
"""A fault of a handler says in which block the message was, whose it was, and where that para's candidates were read from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.core.handlers.relay import LIMITS, bound, dispatcher
from tests.unit.core.test_lane import _input, block
from validator.core.handlers.context import Context
from validator.core.handlers.errors import HandlerFault
from validator.core.inputs import Input, RecordKind
from validator.core.lane import Lane
from validator.core.rules import ChainSettings
from validator.core.types import Para
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.rules import ROUTER

ONE_A_ROUND = replace(LIMITS, preferred_dispatchable_upward_messages_step_weight=10)


def ends(context: Context, message: bytes) -> None:
    if message == b"boom":
        raise SystemExit(0)


RAISES = ends.__code__.co_firstlineno + 2
"""The line that raises."""


def lane(configuration: HostConfiguration = LIMITS) -> Lane:
    upward = dispatcher([bound("ends", ends, decode=bytes)])
    settings = ChainSettings(configuration, (Para(1), Para(2)), upward_messages=upward)
    return Lane("chain", ROUTER.at_genesis(settings), 0)


def candidate(number: int, index: int, para: int, *messages: bytes) -> Input:
    fields = (para, number - 1, number - 1, messages, 0, (), None)
    return _input(RecordKind.CANDIDATE, number, index, fields, offset=10 * number + index)


def test_fault_names_the_record_with_the_message() -> None:
    chain = lane()
    for item in (block(1, candidates=2), candidate(1, 0, 2, b"fine"), candidate(1, 1, 1, b"boom")):
        assert chain.add(item) == []
    with pytest.raises(HandlerFault) as caught:
        list(chain.execute_ready())
    assert str(caught.value) == (
        f"handler test@1.0 (ends): SystemExit raised, at core/test_faults.py:{RAISES}; block 1, para 1, whose candidate in it is t:0:11"
    )


def test_fault_of_a_message_that_has_waited_says_that_the_block_has_no_candidate() -> None:
    chain = lane(ONE_A_ROUND)
    first = (block(1, candidates=1), candidate(1, 0, 1, b"fine", b"boom"))
    for item in (*first, block(2), block(3)):
        assert chain.add(item) == []
    with pytest.raises(HandlerFault) as caught:
        list(chain.execute_ready())
    assert str(caught.value) == (
        f"handler test@1.0 (ends): SystemExit raised, at core/test_faults.py:{RAISES}; block 2, para 1, which has no candidate in it"
    )
