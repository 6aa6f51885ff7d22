# SPDX-License-Identifier: Apache-2.0
"""Every topic whose records people read, of the job and of plugins: its schemas, and its records in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from validator.codec.codec import RecordUnreadable, shared_codec
from validator.codec.json_form import datum_to_json, shown_json
from validator.errors import UserError
from validator.hexadecimal import to_hex
from validator.plugin.rule_pages import RuleReferences, installed_pages
from validator.record_filter import PARA_FIELDS
from validator.topics import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from validator.codec.schemas import Schema
    from validator.config import Config
    from validator.transports.runner import PluginTopic

OUTPUTS: Final = (
    "verdicts",
    "dispatches",
    "channel-events",
    "ingress-events",
    "headroom",
    "receipts",
    "dead-letters",
    "lanes",
)
"""The job's topics that people read."""


@dataclass(frozen=True)
class ReadableTopic:
    """A topic: who writes it (``owner``), the ``schemas`` of its records, and ``decode``, which returns a value in JSON.

    ``missing`` says what to do if the topic does not exist. ``columns`` are the fields of a plugin's table. ``decode`` raises `UserError`.
    """

    name: str
    owner: str
    purpose: str
    schemas: tuple[Schema, ...]
    decode: Callable[[bytes], dict[str, Any]]
    missing: str
    columns: tuple[str, ...] = ()

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names of the fields of its records."""
        return frozenset(field["name"] for schema in self.schemas for field in schema.source["fields"])

    @property
    def has_para(self) -> bool:
        """Whether its records are about paras."""
        return not self.fields.isdisjoint(PARA_FIELDS)


def output_topic(name: str) -> ReadableTopic:
    """Return one of `OUTPUTS`."""
    purpose = next(topic.purpose for topic in TOPICS if topic.name == name)
    schemas = tuple(shared_codec().schemas[each] for each in shared_codec().names(name))
    missing = "create the topics with `validator topics create`"
    return ReadableTopic(name, "job", purpose, schemas, partial(shown_json, name), missing)


def plugins_topics(config: Config) -> dict[str, ReadableTopic]:
    """Return the topics of all plugins, installed and shipped, by name."""
    from validator.transports.runner import plugin_topics  # imports every plugin

    return {name: _of_plugin(topic) for name, topic in plugin_topics(config).items()}


def readable_topics(config: Config) -> dict[str, ReadableTopic]:
    """Return every topic that people read, by name: the job's, then those of plugins."""
    return {name: output_topic(name) for name in OUTPUTS} | plugins_topics(config)


def _of_plugin(topic: PluginTopic) -> ReadableTopic:
    schema = topic.form.format.schema

    def decode(value: bytes) -> dict[str, Any]:
        try:
            return datum_to_json(schema, topic.form.format.decode(value), digits=to_hex)
        except RecordUnreadable as error:
            raise UserError(f"{topic.name}: {error}") from None

    missing = f"start the {topic.owner}, which creates it"
    return ReadableTopic(topic.name, topic.owner, topic.purpose, (schema,), decode, missing, topic.form.columns)


class RuleNames:
    """Adds to each rejection, after its clause, the page and anchor of its error; null if no installed protocol has it.

    ``protocols`` has the protocol of each lane.
    """

    def __init__(self, protocols: Mapping[str, str]) -> None:
        self._protocols = protocols

    @cached_property
    def _references(self) -> RuleReferences:
        return RuleReferences(installed_pages()[0])  # as late as possible: it imports every protocol's plugin

    def add(self, verdict: dict[str, Any]) -> dict[str, Any]:
        """Return a verdict in JSON with its rule."""
        if verdict["ok"]:
            return verdict
        error = verdict["error"]
        rule = self._references.of(error["kind"], error["clause"], self._protocols.get(verdict["lane"]))
        return {**verdict, "error": {**error, "rule": rule}}
