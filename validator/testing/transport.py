# SPDX-License-Identifier: Apache-2.0
"""An in-memory stand-in for Kafka: a test supplies the job's output records and reads what the transport submits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from validator.codec.json_form import encode_json
from validator.config import DEFAULT_PROTOCOL
from validator.errors import UserError
from validator.plugin.api import Manifest, Record, Transport
from validator.plugin.registry import (
    Found,
    Plugin,
    PluginError,
    Problem,
    canonical,
    configure,
    installed,
    register,
    transports_of,
)
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.plugin.submission import RecordForms, check_submission, check_timeout
from validator.topics import OUTPUT_TOPICS


class MemoryTransport:
    """One transport of ``plugin``, with lists in place of Kafka.

    ``plugin`` is a module or object with hooks, or the name of an installed plugin. ``config`` is what ``[transports.<name>]`` would hold.
    ``transport`` selects one if the plugin yields several. `outputs` are the records of all output topics; the transport receives those of
    its topics. `submitted` are the records that it wrote. ``protocols`` are the protocols by lane; other lanes have the default one.

    Raises `PluginError` for problems of the plugin or its configuration, then `UserError` if the plugin does not yield this transport.
    """

    def __init__(
        self,
        plugin: Any,
        config: Mapping[str, Any] | None = None,
        *,
        transport: str | None = None,
        outputs: Iterable[Record] = (),
        protocols: Mapping[str, str] | None = None,
    ) -> None:
        self.plugin = _resolve(plugin)
        values = canonical(dict(config or {}))
        self.config = configure(self.plugin, values)
        self.transport = _choose(self.plugin, transports_of(self.plugin, values), transport)
        lanes = dict(protocols or {})
        codec = codec_of(map(RuntimePlan, {DEFAULT_PROTOCOL, *lanes.values()}))
        self.forms = RecordForms(codec, lambda lane: lanes.get(lane, DEFAULT_PROTOCOL))
        """Converts records for the transport, and for its tests."""
        self.outputs: list[Record] = list(outputs)
        """The job's output records, in order; append to the list between two runs."""
        self.submitted: list[Record] = []
        """The records written to input topics, in order."""
        self.acknowledged = 0
        """How many of `outputs` are acknowledged and not received again."""

    def emit(self, topic: str, record: Mapping[str, Any]) -> None:
        """Append an output record, given in JSON form, as the job would emit it. Raises `UserError` for a wrong topic or record."""
        names = self.forms.codec.names(topic) if topic in OUTPUT_TOPICS else ()
        for at, name in enumerate(names):
            try:
                value = encode_json(self.forms.codec.schemas[name], dict(record))
            except UserError:
                if at + 1 == len(names):
                    raise
                continue
            self.outputs.append((topic, str(record["lane"]).encode(), value))
            return
        raise UserError(f"topic: expected one of {', '.join(OUTPUT_TOPICS)}, found {topic!r}")

    def run(self, *, receives_max: int | None = None, submits_max: int | None = None) -> None:
        """Start the transport, as a restarted process does, from the first record not acknowledged, and run it until it returns.

        The context asks it to stop when nothing is left to receive, after ``receives_max`` records received, or after ``submits_max``
        submitted. Raises whatever the transport raises.
        """
        self.transport.run(MemoryContext(self, receives_max, submits_max))


class MemoryContext:
    """The context of one run (`validator.plugin.api.TransportContext`)."""

    def __init__(self, memory: MemoryTransport, receives_max: int | None, submits_max: int | None) -> None:
        self.config = memory.config
        self.encode, self.decode = memory.forms.encode, memory.forms.decode
        self._memory = memory
        self._position = memory.acknowledged
        self._receives_left = receives_max
        self._submits_left = submits_max
        self._stopping = 0 in (receives_max, submits_max)

    @property
    def stopping(self) -> bool:
        """Whether the transport should stop."""
        return self._stopping

    def submit(self, topic: str, key: bytes, value: bytes) -> None:
        """Append a record to `MemoryTransport.submitted`. Raises ``ValueError``."""
        check_submission(topic, key, value)
        self._memory.submitted.append((topic, key, value))
        if self._submits_left is not None:
            self._submits_left -= 1
            self._stopping = self._stopping or self._submits_left <= 0

    def receive(self, timeout_s: float) -> Record | None:
        """Return the next record of the transport's topics, or None at once if there is none. Raises ``ValueError``."""
        check_timeout(timeout_s)
        outputs, topics = self._memory.outputs, self._memory.transport.topics
        while not self._stopping and self._position < len(outputs):
            record = outputs[self._position]
            self._position += 1
            if record[0] in topics:
                if self._receives_left is not None:
                    self._receives_left -= 1
                    self._stopping = self._receives_left <= 0
                return record
        self._stopping = True
        return None

    def acknowledge(self) -> None:
        """Mark everything received so far as delivered, so that it is not received again."""
        self._memory.acknowledged = self._position


def _resolve(plugin: Any) -> Plugin:
    group = "validator.transports"
    if isinstance(plugin, str):
        there = installed(group, [plugin])
        if len(there) > 1:
            versions = ", ".join(version for _, version in there)
            raise PluginError([Problem(plugin, f"versions {versions} are installed", "leave one of them")])
        return next(iter(there.values()))
    hook = getattr(plugin, "validator_manifest", None)
    manifest = hook() if callable(hook) else None
    name, version = (manifest.name, manifest.version) if isinstance(manifest, Manifest) else ("plugin", "0")
    where = getattr(plugin, "__name__", None) or type(plugin).__qualname__
    return register(Found(group, name, where, name, version, getattr(plugin, "__file__", None) or where), plugin)


def _choose(plugin: Plugin, transports: tuple[Transport, ...], name: str | None) -> Transport:
    chosen = [each for each in transports if name in (None, each.name)]
    if len(chosen) != 1:
        there = ", ".join(sorted(each.name for each in transports)) or "none"
        raise UserError(f"{plugin}: expected one transport{'' if name is None else f' {name!r}'}, found {there}")
    return chosen[0]
