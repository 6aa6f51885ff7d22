# SPDX-License-Identifier: Apache-2.0
"""The hooks. A program calls each plugin's hooks separately, once, at start-up. It sorts and freezes the results: order has no effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from validator.plugin.api import Handler, Manifest, Transport
from validator.plugin.protocol_api import ProtocolDefinition

hookspec = pluggy.HookspecMarker("validator")


class EveryGroup:
    """The hook that every plugin implements."""

    @hookspec
    def validator_manifest(self) -> Manifest:
        """Return the plugin's identity; called first. Since API 1.0.

        >>> from validator.plugin.api import Manifest, hookimpl
        >>> @hookimpl
        ... def validator_manifest():
        ...     return Manifest(name="remark", version="1.0.0", api_version=(2, 0))
        """
        raise NotImplementedError


class Handlers(EveryGroup):
    """Group ``validator.handlers``: upward-message kinds. They run with the lanes, in the deterministic zone."""

    @hookspec
    def validator_handlers(self, config: Any) -> Iterable[Handler]:
        """Yield the handlers for a chain; ``config`` is an instance of the manifest's class, or None. Since API 1.0.

        A handler's function is called for each message of its kind, in the order of the dispatch round.

        >>> from validator.plugin.api import Handler, MessageWeight, hookimpl
        >>> def keep(context, payload):
        ...     context.write(context.origin.to_bytes(4, "little"), payload[2:])
        >>> @hookimpl
        ... def validator_handlers(config):
        ...     yield Handler(kind="remark", handle=keep, prefix=b"\\x00\\x01", weight=MessageWeight(1_000, per_byte=10))
        """
        raise NotImplementedError


class Protocols(EveryGroup):
    """Group ``validator.protocols``: rule sets. They run with the lanes, in the deterministic zone."""

    @hookspec
    def validator_protocols(self) -> Iterable[ProtocolDefinition]:
        """Yield the rule sets that chains can select by name. Since API 1.0.

        >>> from dataclasses import replace
        >>> from importlib.metadata import entry_points
        >>> from validator.plugin.protocol_api import hookimpl
        >>> another = sorted(entry_points(group="validator.protocols"))[0].load()
        >>> @hookimpl
        ... def validator_protocols():
        ...     for definition in another.validator_protocols():
        ...         yield replace(definition, name="protocol-of-mine")
        """
        raise NotImplementedError


class Transports(EveryGroup):
    """Group ``validator.transports``: routes in and out. Each runs in its own process and may have side effects."""

    @hookspec
    def validator_transports(self, config: Any) -> Iterable[Transport]:
        """Yield the transports for ``config``: an instance of the manifest's class, or None. Since API 1.0.

        >>> from validator.plugin.api import Transport, hookimpl
        >>> def run(context):
        ...     while not context.stopping:
        ...         record = context.receive(timeout_s=1.0)
        ...         if record is not None:
        ...             print(record)
        ...             context.acknowledge()
        >>> @hookimpl
        ... def validator_transports(config):
        ...     yield Transport(name="print", run=run, topics=("verdicts",))
        """
        raise NotImplementedError


GROUPS: dict[str, type[EveryGroup]] = {
    "validator.handlers": Handlers,
    "validator.protocols": Protocols,
    "validator.transports": Transports,
}
"""The hooks of each entry-point group."""
