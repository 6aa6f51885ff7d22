# SPDX-License-Identifier: Apache-2.0
"""A peer of a gateway: submits records and watches topics. It needs neither the product nor Kafka nor Java."""

from validator_channel.client.client import (
    ChannelClient,
    ClientClosed,
    NotConnected,
    Receipt,
    Refused,
    Status,
    WatchEvent,
)
from validator_channel.client.config import ClientConfig, load_config
from validator_channel.limits import ClientLimits
from validator_channel.tables import ConfigError

__all__ = [
    "ChannelClient",
    "ClientClosed",
    "ClientConfig",
    "ClientLimits",
    "ConfigError",
    "NotConnected",
    "Receipt",
    "Refused",
    "Status",
    "WatchEvent",
    "load_config",
]
