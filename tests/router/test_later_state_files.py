# SPDX-License-Identifier: Apache-2.0
"""State files with what later rules keep: reachable states are read, all else is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.router.test_later_pages import HEAVY, SETTINGS, later_router, loaded
from validator.core.rules import pages
from validator.core.types import SessionChange
from validator.document import Node
from validator.errors import UserError
from validator.protocols.router.encoding import encode_state
from validator.protocols.router.records import Candidate
from validator.protocols.router.statefile import STATE_FILE


def test_state_with_messages_of_a_para_that_has_left_reads_back() -> None:
    """A candidate may be enacted after its para has left (I-25, I-28), so such a state is reachable."""
    router = later_router()
    router.begin_block(5)
    router.change_session(SessionChange(outgoing=(2004,)))
    router.begin_block(6)
    router.enact_candidate(Candidate(2004, 5, 5, (HEAVY, b"late"), 0, ()))
    router.dispatch()
    document = STATE_FILE.write(router.state)
    assert 2004 not in router.state.paras
    assert set(document["ump_overweight"]) == {"2004"}
    again = loaded(Node(document, "state"), SETTINGS)
    again.state.session_index = router.state.session_index
    assert encode_state(again.state) == encode_state(router.state)


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ({"ump_overweight": {"1": [{"page": 2**31, "index": 0, "msg": "aa"}]}}, "page: expected an integer from 0 to 2147483647"),
        ({"ump_overweight": {"1": [{"page": 0, "index": 2**30, "msg": "aa"}]}}, "index: expected an integer from 0 to 1048576"),
        ({"ump_books": {"1": {"begin": 2**32 - 1, "end": 2**32 - 1, "pages": {}}}}, "begin: expected an integer from 0 to 2147483648"),
        (
            {"open_requests": {"1->2": {"confirmed": False, "age": 0, "sender_deposit": 0, "limit_used_places": 1,
             "limit_used_bytes": 1, "limit_message_size": 1, "recipient_deposit": "x"}}},
            "recipient_deposit: expected null, since the request is not confirmed",
        ),
        (
            {"ump_books": {"1": {"begin": 0, "end": 1, "pages": {"00": {"heap_used": 9, "messages": ["aa"]}}}}},
            r"pages.00: expected a page's number from 0 to 4294967295 as key, found '00'",
        ),
        (
            {"ump_queues": {"1": ["aa", "aa" * 17]}, "ready_ring": [1]},
            r"ump_queues.1\[1\]: expected at most 16 bytes, which a page holds, found 17$",
        ),
        (
            {"ump_queues": {"1": ["aa"], "2": ["bb" * 60_000]}, "ready_ring": [1]},
            r'ump_queues.2: the file says \["b{195}..., its other keys imply null$',
        ),
        ({"valid_paras": [1, {"para_id": 1, "kind": "parathread"}]}, r"valid_paras\[1\]: expected a para that is not listed yet"),
    ],
)  # fmt: skip
def test_state_file_with_number_out_of_range_is_refused(state: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line):
        loaded(Node({"valid_paras": [1, 2], "ready_ring": [], **state}, "state"), SETTINGS)


def test_para_without_messages_set_aside_reads_back() -> None:
    one = loaded(Node({"valid_paras": [1], "ready_ring": []}, "state"), SETTINGS)
    other = loaded(Node({"valid_paras": [1], "ready_ring": [], "ump_overweight": {"1": []}}, "state"), SETTINGS)
    assert pages(other) == pages(one)
    assert pages(loaded(Node(STATE_FILE.write(other.state), "state"), SETTINGS)) == pages(one)
