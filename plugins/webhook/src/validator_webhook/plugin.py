# SPDX-License-Identifier: Apache-2.0
"""The transport `webhook`."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator

from validator.plugin.api import Manifest, Transport, TransportContext, hookimpl
from validator_webhook import __version__
from validator_webhook.config import Configuration
from validator_webhook.figures import METRICS
from validator_webhook.records import own_topics


@hookimpl
def validator_manifest() -> Manifest:
    return Manifest("webhook", __version__, (2, 0), Configuration)


@hookimpl
def validator_transports(config: Configuration | None) -> Iterator[Transport]:
    """Yield the transport. It reads topics from the positions of its subscriptions, so it has none itself."""
    jobs = () if config is None else config.jobs
    lanes = (
        ()
        if config is None
        else tuple(sorted({each.lane for each in config.subscriptions.values() if each.lane is not None}))
    )
    yield Transport("webhook", run, jobs=jobs, lanes=lanes, cursors=True, own=own_topics(), metrics=METRICS)


def run(context: TransportContext) -> None:
    """Deliver until the context asks to stop; the log goes to standard error."""
    from validator_webhook.service import Service

    log = logging.getLogger("validator_webhook")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s webhook: %(message)s"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        asyncio.run(Service(context, context.config).run())
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
