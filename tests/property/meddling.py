# SPDX-License-Identifier: Apache-2.0
"""A handler that changes everything it can and then fails: nothing of it may stay."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from tests.property.router_inputs import NOBODY, PARAS
from validator.core.errors import Violation
from validator.core.handlers.context import Context, Host
from validator.core.handlers.dispatch import DispatchTable, HandlerDispatcher, HandlerEpoch
from validator.core.handlers.errors import ContextError
from validator.core.handlers.handler import BoundHandler, Handler, MessageWeight
from validator.core.handlers.upward import FixedWeightDispatcher
from validator.core.outcomes import DispatchOutcome, Processed
from validator.core.types import ParaId, Weight


def meddle(context: Context, payload: bytes) -> None:
    """Do anything that the rules allow, then fail."""
    for para in (*PARAS, NOBODY):
        for call in (
            partial(context.init_open_channel, para, 1, 1),
            partial(context.accept_open_channel, para),
            partial(context.close_channel, context.origin, para),
            partial(context.close_channel, para, context.origin),
            partial(context.queue_downward_message, para, payload),
            partial(context.transfer, para, 1),
            partial(context.write, para.to_bytes(2), payload),
        ):
            with suppress(Violation, ContextError):
                call()
    raise ValueError


MEDDLING = BoundHandler("meddling", "1.0", Handler("any", meddle, MessageWeight(0), decode=lambda payload: payload))


class MeddlingDispatcher(FixedWeightDispatcher):
    """Failing messages fail only after their handler has changed everything it can; the model sees none of it."""

    handlers = HandlerDispatcher([HandlerEpoch(0, DispatchTable([MEDDLING]))], weight_max=10**9)

    def process(self, host: Host, para: ParaId, payload: bytes, limit: Weight | None = None) -> Processed:
        processed = super().process(host, para, payload, limit)
        if processed.outcome is DispatchOutcome.FAILED:
            assert self.handlers.process(host, para, payload).failure == "ValueError: "
        return processed
