# SPDX-License-Identifier: Apache-2.0
"""A peer of a gateway: submits records and watches topics. It needs neither the product nor Kafka nor Java."""

from validator_channel.client.client import ChannelClient
from validator_channel.client.config import ClientConfig, ConfigError, load_config
from validator_channel.client.errors import ClientClosed, NotConnected, Refused
from validator_channel.client.limits import ClientLimits
from validator_channel.client.status import Status
from validator_channel.client.submissions import Receipt
from validator_channel.client.watching import WatchEvent

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
