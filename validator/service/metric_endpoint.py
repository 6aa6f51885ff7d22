# SPDX-License-Identifier: Apache-2.0
"""The HTTP endpoint that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.registry import Collector

from validator.errors import UserError
from validator.metrics.address import parse_address


@contextmanager
def endpoint(listen: str, key: str, collector: Collector) -> Iterator[str]:
    """Serve a collector's metrics, and those of this process, until the end; yield the page's address.

    ``key`` names the setting in messages. Raises `UserError` if the address cannot be used, say because its port is busy.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    host, port = parse_address(listen)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UserError(f"{key} {listen}: metrics cannot be served there: {error.strerror or error}") from error
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
