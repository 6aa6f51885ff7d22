# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI 3.1 document: every list with its parameters, and the JSON form of each record, made from its Avro schema.

`validator.codec.json_form` makes the forms, as people read them: bytes are hex with ``0x``, a verdict has ``ok`` and a flat error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from validator import __version__
from validator.codec.json_form import LONG_RANGES, UNSIGNED
from validator.codec.strict import Named
from validator.serve.limits import UNREADABLE_MAX
from validator.serve.parameters import CURSOR, HASHED, PAGE, STREAM, filters_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from validator.client.topics import ReadableTopic
    from validator.codec.schemas import Schema
    from validator.serve.parameters import Parameter

Json = dict[str, Any]

_PROBLEM: Final[Json] = {
    "type": "object",
    "description": "RFC 9457.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What was expected, and what was found."},
    },
}
_UNREADABLE: Final[Json] = {
    "type": "array",
    "maxItems": UNREADABLE_MAX,
    "description": "Records of the page that cannot be read, such as those of a newer version.",
    "items": {
        "type": "object",
        "required": ["partition", "offset", "why"],
        "properties": {
            "partition": {"type": "integer"},
            "offset": {"type": "integer"},
            "why": {"type": "string"},
        },
    },
}
_CURSOR: Final[Json] = {"type": ["string", "null"]}
STATUSES: Final = {
    "400": "A parameter or a cursor is none, or the cursor belongs to another list.",
    "401": "The token is missing or wrong.",
    "404": "There is no such list, or nothing was found.",
    "405": "Only GET and HEAD are answered.",
    "410": "Kafka no longer has the records behind the cursor: begin without it.",
    "413": "The request has a body.",
    "414": "The address is too long.",
    "421": "The host name is not the server's.",
    "503": "Kafka does not answer, or too many streams are open: ask again.",
}


def document(topics: Iterable[ReadableTopic], lanes: Sequence[str]) -> Json:
    """Return the document. ``lanes`` are those that a filter may name, none for any."""
    paths: Json = {}
    components = _Components()
    for topic in topics:
        ref = components.of_topic(topic)
        filters = [_parameter(each, lanes) for each in filters_of(topic)]
        paths[f"/v1/{topic.name}"] = {
            "get": {
                "operationId": _name(topic.name, "list"),
                "tags": [topic.name],
                "summary": f"{topic.purpose[:1].upper()}{topic.purpose[1:]}",
                "parameters": [*filters, *(_parameter(each, lanes) for each in PAGE)],
                "responses": _responses(_page(ref), "400", "410"),
            }
        }
        paths[f"/v1/{topic.name}/events"] = {
            "get": {
                "operationId": _name(topic.name, "follow"),
                "tags": [topic.name],
                "summary": "The same as they arrive, as server-sent events whose data is one record",
                "parameters": [*filters, *(_parameter(each, lanes) for each in STREAM), _LAST_EVENT_ID],
                "responses": _responses({"text/event-stream": {"schema": {"type": "string"}}}, "400", "410"),
            }
        }
        if topic.name == "verdicts":
            paths["/v1/verdicts/{hash}"] = {
                "get": {
                    "operationId": "findVerdict",
                    "tags": [topic.name],
                    "summary": "The newest verdict that holds a hash: its id, its candidate's hash, an MQC head",
                    "parameters": [_parameter(HASHED, lanes) | {"in": "path", "required": True}],
                    "responses": _responses({"application/json": {"schema": ref}}, "400"),
                }
            }
    paths["/v1"] = {
        "get": {
            "operationId": "lists",
            "summary": "The lists, each with its address",
            "responses": _responses({"application/json": {"schema": _LISTS}}),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "validator serve",
            "version": __version__,
            "summary": "What the topics of a validator hold, read-only.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, **components.schemas},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


_LAST_EVENT_ID: Final[Json] = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The last id that the reader has seen: it continues behind it. It takes precedence over `cursor` and `start`.",
    "schema": CURSOR.schema,
}
_LISTS: Final[Json] = {
    "type": "object",
    "required": ["lists"],
    "properties": {
        "lists": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["topic", "owner", "purpose", "path"],
                "properties": {name: {"type": "string"} for name in ("topic", "owner", "purpose", "path")},
            },
        }
    },
}


def _page(ref: Json) -> Json:
    described = {
        "items": {"type": "array", "items": ref},
        "next": _CURSOR | {"description": "The cursor of the next page; null behind the oldest record."},
        "follow": _CURSOR | {"description": "From the newest on: the cursor of what arrives after the first page."},
        "at_end": {"type": "boolean", "description": "Whether no further records were there."},
        "scanned": {"type": "integer", "description": "Records that were read for the page."},
        "unreadable": _UNREADABLE,
    }
    return {"application/json": {"schema": {"type": "object", "required": list(described), "properties": described}}}


def _parameter(parameter: Parameter, lanes: Sequence[str]) -> Json:
    schema = {"type": "string", "enum": list(lanes)} if parameter.name == "lane" and lanes else parameter.schema
    return {"name": parameter.name, "in": "query", "description": parameter.says, "schema": schema}


def _responses(content: Json, *more: str) -> Json:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    statuses = sorted({"401", "404", "405", "413", "414", "421", "503", *more})
    refused = {status: {"description": STATUSES[status], "content": problem} for status in statuses}
    return {"200": {"description": "Found.", "content": content}, **refused}


def _name(topic: str, verb: str) -> str:
    return verb + "".join(part[:1].upper() + part[1:] for part in re.split(r"\W", topic))


class _Components:
    """JSON schemas of records, by the full name of their Avro schema."""

    def __init__(self) -> None:
        self.schemas: dict[str, Json] = {}

    def of_topic(self, topic: ReadableTopic) -> Json:
        refs = [self._of(schema) for schema in topic.schemas]
        return refs[0] if len(refs) == 1 else {"anyOf": refs}

    def _of(self, schema: Schema) -> Json:
        form = _Form(schema.source, self.schemas)
        return form.of(schema.source)


class _Form(Named):
    """The JSON schemas of one Avro schema's types; records become components."""

    def __init__(self, schema: Any, components: dict[str, Json]) -> None:
        super().__init__(schema)
        self._components = components

    def of(self, schema: Any) -> Json:
        if isinstance(schema, list):
            branches = [self.of(branch) for branch in schema]
            return branches[0] if len(branches) == 1 else {"anyOf": branches}
        kind, attributes = self.resolve(schema)
        match kind:
            case "int" | "long":
                low, high = LONG_RANGES[attributes.get("logicalType")]
                return {"type": "integer", "minimum": low, "maximum": high}
            case "bytes":
                return {"type": "string", "pattern": "^0x([0-9a-f]{2})*$"}
            case "fixed" if attributes.get("logicalType") in UNSIGNED:
                return {"type": "integer", "minimum": 0, "maximum": 2 ** (8 * attributes["size"]) - 1}
            case "fixed":
                return {"type": "string", "pattern": f"^0x[0-9a-f]{{{2 * attributes['size']}}}$"}
            case "enum":
                return {"type": "string", "enum": attributes["symbols"]}
            case "array":
                return {"type": "array", "items": self.of(attributes["items"])}
            case "map":
                return {"type": "object", "additionalProperties": self.of(attributes["values"])}
            case "record":
                name = attributes["name"]
                if name not in self._components:
                    self._components[name] = {}  # it may contain itself
                    self._components[name] = self._record(attributes)
                return {"$ref": f"#/components/schemas/{name}"}
            case "float" | "double":
                return {"type": "number"}
        return {"type": kind}

    def _record(self, attributes: Json) -> Json:
        if attributes.get("json") == "pair":
            items = [self.of(field["type"]) for field in attributes["fields"]]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        properties, optional = {}, set()
        for field in attributes["fields"]:
            name, form = field["name"], self.of(field["type"])
            if (attributes["name"], name) == ("validator.Verdict", "outcome"):
                name, form = "ok", {"type": "boolean"}
            elif (attributes["name"], name) == ("validator.Verdict", "error"):
                form = _ERROR
                optional.add(name)
            elif name == "expires_session":
                form = {"anyOf": [form, {"type": "null"}]}
            elif attributes.get("json") == "sparse" and isinstance(field["type"], list) and "null" in field["type"]:
                optional.add(name)
            properties[name] = form | ({"description": _sentence(field["doc"])} if field.get("doc") else {})
        made: Json = {
            "type": "object",
            "required": [name for name in properties if name not in optional],
            "properties": properties,
        }
        return made | ({"description": _sentence(attributes["doc"])} if attributes.get("doc") else {})


_ERROR: Final[Json] = {
    "type": "object",
    "required": ["kind", "clause", "rule"],
    "properties": {
        "kind": {"type": "string", "description": "The broken rule."},
        "clause": {"type": "string", "description": "The clause of the specification that states the rule."},
        "rule": {"type": ["string", "null"], "description": "Its page and anchor in the documentation."},
    },
    "additionalProperties": {"type": ["integer", "string", "object", "array"]},
}


def _sentence(text: str) -> str:
    """Return a schema's documentation without its source, which is for readers of the schema."""
    return re.sub(r"\s*Source: .*", "", text).strip()
