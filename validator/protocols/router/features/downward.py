# SPDX-License-Identifier: Apache-2.0
"""Later rules for downward messages: further checks before one is queued, and the version around notifications."""

from __future__ import annotations

from typing import Final

from validator.core.types import ParaId
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.features.errors import DownwardQueueFull, Unroutable
from validator.protocols.router.state import RouterState

DOWNWARD_QUEUE_BYTES_MAX: Final = 33_554_432
"""Bytes of a downward queue of messages of greatest size; it gives the queue's limit in messages. Source: router_profiles 3.7."""

FIRST_LIST_VERSION: Final = 2
"""The first XCM version whose messages are lists of instructions."""

_LIST_OF_ONE: Final = b"\x04"
"""A SCALE list's length prefix for one item."""


def check_queue_length(state: RouterState, para: ParaId) -> None:
    """Check that a downward queue may take another message; the limit plus one message fit. Raises `DownwardQueueFull`."""
    size = state.host_configuration.max_downward_message_size
    limit = DOWNWARD_QUEUE_BYTES_MAX // size if size else 0
    length = len(state.downward_message_queues.get(para, ()))
    if length > limit:
        raise DownwardQueueFull(queue_length=length, limit=limit)


def check_head_exists(state: RouterState, para: ParaId) -> None:
    """Check that a para is valid, which is to say that it has a head. Raises `Unroutable`. Source: router_profiles 3.13."""
    if para not in state.paras:
        raise Unroutable(para_id=para)


def versioned_notification(config: HostConfiguration, body: bytes) -> bytes:
    """Return the notification with this body in the configured version of XCM. Source: router_profiles 3.2."""
    version = config.notification_xcm_version
    if version < FIRST_LIST_VERSION:
        return bytes((version,)) + body
    return bytes((version,)) + _LIST_OF_ONE + body
