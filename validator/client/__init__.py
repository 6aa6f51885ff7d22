# SPDX-License-Identifier: Apache-2.0
"""A client of a running validator, for Python programs: send blocks, and follow what the lanes say. Needs neither Spark nor Java.

`connect` reaches the Kafka that a configuration names; `in_memory` runs the real rules in this process, for tests of programs that use this
module. Both return a `Client`. `validator.client.aio` has the same for asyncio. docs/client.md shows all of it.
"""

from __future__ import annotations

from validator.client.facade import Client, DryRun, Progress, connect, in_memory
from validator.client.producer import BlockOnItsWay, Producer
from validator.client.records import (
    ChannelEvent,
    ChannelHeadroom,
    Dispatch,
    Error,
    HandlerEvent,
    MessageRange,
    MessageRef,
    ParaHeadroom,
    Position,
    Receipt,
    Signal,
    Verdict,
)
from validator.client.streams import PluginRecord, Positions, Stream
from validator.errors import UserError

__all__ = [
    "BlockOnItsWay",
    "ChannelEvent",
    "ChannelHeadroom",
    "Client",
    "Dispatch",
    "DryRun",
    "Error",
    "HandlerEvent",
    "MessageRange",
    "MessageRef",
    "ParaHeadroom",
    "PluginRecord",
    "Position",
    "Positions",
    "Producer",
    "Progress",
    "Receipt",
    "Signal",
    "Stream",
    "UserError",
    "Verdict",
    "connect",
    "in_memory",
]
