# SPDX-License-Identifier: Apache-2.0
"""A lack of memory for records is no bug, wherever they are read and whatever the client says of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streaming import lane_operator
from streaming.lane_operator import read_held_inputs
from validator.kafka.reader import NotUnpacked, available
from validator.lanes.parked import Span


def test_lane_that_continues_has_no_memory_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is parked again; other lanes continue."""

    def reader(*_: object, **__: object) -> Any:
        raise NotUnpacked("records of blocks[0] cannot be unpacked")

    monkeypatch.setattr(lane_operator, "TopicReader", reader)
    monkeypatch.setattr(lane_operator, "job_codec", lambda _: SimpleNamespace(knowing=lambda _: None))
    monkeypatch.setattr(lane_operator, "SecondLook", lambda *_: SimpleNamespace(refuse_soon=lambda *_: None))
    with pytest.raises(MemoryError):
        read_held_inputs({}, "", {}, "a", ("blocks", 0), Span(0, 5), 1_000)


@pytest.mark.parametrize(("cause", "raised"), [(MemoryError(), MemoryError), (ValueError("x"), SystemError)])
def test_client_may_hide_what_it_lacks(cause: Exception, raised: type[Exception]) -> None:
    def consume(*_: object) -> Any:
        raise SystemError("returned a result with an exception set") from cause

    consumer: Any = SimpleNamespace(poll=lambda _: object(), consume=consume)
    with pytest.raises(raised):
        available(consumer, 10, 0.0)
