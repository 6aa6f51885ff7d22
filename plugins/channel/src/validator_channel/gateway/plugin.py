# SPDX-License-Identifier: Apache-2.0
"""The transport `channel`: a gateway for peers that speak Channel."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from itertools import starmap
from typing import Any, Final

from validator.plugin.api import Manifest, Measure, PluginMetric, Transport, TransportContext, hookimpl
from validator_channel import __version__
from validator_channel.errors import printable
from validator_channel.gateway import measures
from validator_channel.gateway.config import GatewayConfig

METRICS: Final = tuple(
    PluginMetric(name, text, () if label is None else (label,)) for name, (text, label, _) in measures.METRICS.items()
)


@hookimpl
def validator_manifest() -> Manifest:
    return Manifest("channel", __version__, (2, 0), GatewayConfig)


@hookimpl
def validator_transports(config: GatewayConfig | None) -> Iterator[Transport]:  # noqa: ARG001
    """Yield the gateway. It reads output topics from positions that peers name, so it has no topics itself."""
    yield Transport("channel", run, metrics=METRICS)


def run(context: TransportContext) -> None:
    """Run the gateway until the context asks it to stop; its log goes to standard error."""
    from validator_channel.gateway.service import Gateway
    from validator_channel.tables import ConfigError

    config: Any = context.config
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s channel: %(message)s"))
    log = logging.getLogger("validator_channel")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        gateway = Gateway(context, config)
        context.measure(lambda: starmap(Measure, measures.values(gateway.counters, gateway.net_counters)))
        asyncio.run(gateway.run())
    except ConfigError as error:
        for problem in error.problems:
            log.error("%s", printable(problem))
        raise
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
