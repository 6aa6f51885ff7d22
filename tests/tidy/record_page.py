# SPDX-License-Identifier: Apache-2.0
"""Makes all that is made of the schemas: `docs/records.md`, and the types of `validator/client/records.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "records.md"
MODULE = ROOT / "validator" / "client" / "records.py"
SCHEMAS = ROOT / "avro"

Json = dict[str, Any]

DRY_RUNS: Final = ("DryRunRequest", "DryRunAnswer")
INPUTS: Final = ("Block", "LaneOrder", "router.Candidate", "router.ChannelRequest", "DownwardMessage")
OUTPUTS: Final = (
    *(
        "Verdict",
        "Dispatch",
        "ChannelEvent",
        "IngressEvent",
        "router.ParaHeadroom",
        "router.ChannelHeadroom",
        "Receipt",
        "DeadLetter",
    ),
    *("LaneStatus", "LaneParked", "LaneAudit", "Marker", "DeadLetterReplay"),
)

TYPED: Final = ("Verdict", "Dispatch", "ChannelEvent", "router.ParaHeadroom", "router.ChannelHeadroom", "Receipt")
"""Records that the client library has types of."""

_MODULE: Final = '''\
# SPDX-License-Identifier: Apache-2.0
"""The records of output topics as typed values. Hashes and payloads are bytes; docs/records.md explains every field.

Made of the schemas by ``make generate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias


class Position(NamedTuple):
    """Where a record stands in its topic."""

    partition: int
    offset: int


NOWHERE: Final = Position(-1, -1)
"""The position of a record that is part of an answer."""


@dataclass(frozen=True, slots=True)
class Error:
    """Why an input was rejected; ``fields`` are the numbers that the error's kind has, by name."""

    kind: str
    clause: str
    fields: Mapping[str, Any]


{types}


Record: TypeAlias = {names}

PARTS: Final[dict[str, Any]] = {parts}
"""By field, the type of its items."""
'''

_PAGE: Final = """\
# Records

Every field of every record on Kafka, for protocol `router`. The schemas in [avro/](../avro) are the source of this page;
`make generate` writes it. `validator schemas show NAME` prints a schema, and [sending.md](sending.md) has an
example of each input. Candidates, channel requests and headroom are different for each protocol.

Types are types of JSON, as `validator submit` takes it and `validator watch --json` prints it. `u32` is an integer from 0 to 2^32 - 1,
`u8`, `u63`, `u64` and `u128` likewise. `hex` are bytes in hex, read with or without `0x` and printed with it. A field with a default
may be left out.

JSON differs from Avro in two records. A channel request has the name of its call as `kind`, and the call's arguments next to it; a channel
is `[sender, recipient]`. A verdict has `ok` and `error`, and its table below lists these. A program that reads Avro finds
`outcome` (`accepted` or `rejected`) in place of `ok`, and in `error` a RuleError.

Headroom holds after the `block` that its record names. It is emitted at intervals, so later blocks may have used some of it: `[job]
headroom_interval_blocks` is 10 by default, and 1 for a chain that begins with at most 16 `genesis_paras`.

## Inputs

{inputs}
## Outputs

{outputs}
## Dry runs

{dry_runs}"""

_EXPIRES: Final = (
    "| `expires_session` | integer or null | null | Session at whose start an unconfirmed request is removed; session index; "
    "null: never. It is the session of the request plus `hrmp_open_request_ttl`, which is 4294967295 in presets of real chains: Avro has "
    "numbers from 4294967295 on for never. |"
)

_VERDICT: Final = {
    "outcome": ["| `ok` | boolean | required | Whether the input is accepted. |"],
    "error": [
        (
            "| `error` | object | absent | Only if `ok` is false: `kind`, the broken rule, its [fields](rules/README.md#errors), and "
            "`clause`, the clause of the specification that states the rule. |"
        )
    ],
    "expires_session": [_EXPIRES],
    "id": [
        "| `id` | hex of 16 bytes | required | The same after a restart or a rebuild; [how it is made](wire-format.md#ids). |"
    ],
}
"""Rows of a verdict's fields that JSON has in place of those of Avro, or that say more than the schema."""

_NUMBERS: Final = {"validator.U128": "u128", "validator.U64": "u64"}


def made() -> dict[Path, str]:
    """Return the page and the module."""
    return {PAGE: render(), MODULE: render_module()}


def render() -> str:
    """Return the text of the page."""
    return (
        _PAGE.format(inputs=_sections(INPUTS), outputs=_sections(OUTPUTS), dry_runs=_sections(DRY_RUNS)).rstrip() + "\n"
    )


def render_module() -> str:
    """Return the source of the client library's types."""
    schemas = [_schema(name) for name in TYPED]
    nested = {record["name"]: record for schema in schemas for record in _nested(schema) if _python(record) != "Error"}
    nested = {name: record for name, record in nested.items() if name != "validator.Detail"}
    parts = {
        field["name"]: field["type"]["items"]["name"]
        for schema in schemas
        for field in schema["fields"]
        if isinstance(field["type"], dict)
        and isinstance(field["type"].get("items"), dict)
        and field["type"]["items"].get("name") in nested
    }
    shown = "".join(f'    "{field}": {_short(name)},\n' for field, name in parts.items())
    types = [_tuple(each) for each in nested.values()] + [_dataclass(each) for each in schemas]
    names = " | ".join(_short(schema["name"]) for schema in schemas)
    return _MODULE.format(types="\n\n\n".join(types), names=names, parts=f"{{\n{shown}}}")


def _tuple(record: Json) -> str:
    has_default = record.get("json") == "sparse"  # JSON leaves out what is null
    fields = [
        f"    {field['name']}: {_python(field['type'])}{' = None' if has_default and 'null' in field['type'] else ''}"
        for field in record["fields"]
    ]
    return "\n".join(
        [f"class {_short(record['name'])}(NamedTuple):", f'    """{_sentence(record["doc"])}"""', "", *fields]
    )


def _dataclass(record: Json) -> str:
    names = {field["name"] for field in record["fields"]}
    fields = [
        f"    {field['name']}: {_python(field['type'])}"
        for field in record["fields"]
        if (record["name"], field["name"]) != ("validator.Verdict", "outcome")
    ]
    lines = [
        "@dataclass(frozen=True, slots=True)",
        f"class {_short(record['name'])}:",
        f'    """{_sentence(record["doc"])}"""',
        "",
    ]
    lines += [*fields, "    at: Position"]
    if record["name"] in _OK:
        says, how = _OK[record["name"]]
        lines += ["", "    @property", "    def ok(self) -> bool:", f'        """{says}"""', f"        return {how}"]
    paras = [f"self.{name}" for name in ("para_id", "sender", "recipient") if name in names]
    of = f"({paras[0]},)" if len(paras) == 1 else f"({', '.join(paras)})"
    lines += [
        "",
        "    @property",
        "    def paras(self) -> tuple[int, ...]:",
        '        """The paras that the record is about."""',
    ]
    return "\n".join([*lines, f"        return {of}"])


def _python(kind: Any) -> str:
    """Return the type of a field in Python."""
    match kind:
        case ["null", other]:
            return f"{_python(other)} | None"
        case {"type": "array", "items": items}:
            return f"tuple[{_python(items)}, ...]"
        case {"type": "map", "values": values}:
            return f"Mapping[str, {_python(values)}]"
        case {"type": "record", "name": name}:
            return "Error" if name == "validator.RuleError" else _short(name)
        case {"type": "fixed", **more}:
            return "int" if "logicalType" in more else "bytes"
        case {"type": "enum"}:
            return "str"
        case {"type": other}:
            return _python(other)
        case _:
            return _IN_PYTHON[kind]


_OK: Final = {
    "validator.Verdict": ("Whether the input was accepted.", "self.error is None"),
    "validator.Dispatch": ("Whether the message was handled.", 'self.outcome == "ok"'),
}

_IN_PYTHON: Final = {
    "string": "str",
    "long": "int",
    "boolean": "bool",
    "bytes": "bytes",
    "validator.Hash": "bytes",
    "validator.U128": "int",
}


def _schema(name: str) -> Json:
    schema: Json = json.loads((SCHEMAS / f"validator.{name}.avsc").read_text(encoding="utf-8"))
    return schema


def schema_names() -> list[str]:
    """Return the names of all schemas."""
    return sorted(path.name.removeprefix("validator.").removesuffix(".avsc") for path in SCHEMAS.glob("*.avsc"))


def _sections(names: tuple[str, ...]) -> str:
    return "\n".join(_section(_schema(name)) for name in names)


def _section(schema: Json) -> str:
    lines = [
        f"### {_short(schema['name'])}",
        "",
        f"Topic `{schema['topic']}`. {_sentence(schema['doc'])}",
        "",
    ]
    lines += _table(schema)
    for record in _nested(schema):
        lines += [f"#### {_short(schema['name'])}: {_short(record['name'])}", ""]
        lines += [_sentence(record["doc"]), ""] if record.get("doc") else []
        lines += _table(record)
    return "\n".join(lines)


def _table(record: Json) -> list[str]:
    if not record["fields"]:
        return []
    shown = _VERDICT if record["name"] == "validator.Verdict" else {}
    rows = [
        row
        for field in record["fields"]
        for row in shown.get(
            field["name"],
            [f"| `{field['name']}` | {_type(field['type'])} | {_default(field)} | {_sentence(field.get('doc', ''))} |"],
        )
    ]
    return ["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""]


def _nested(schema: Any) -> Iterator[Json]:
    """Yield the records inside a record that are defined there, in order."""
    for field in schema["fields"]:
        for each in _types(field["type"]):
            if isinstance(each, dict) and each["type"] == "record":
                yield each
                yield from _nested(each)


def _types(kind: Any) -> Iterator[Any]:
    if isinstance(kind, list):
        for each in kind:
            yield from _types(each)
    elif isinstance(kind, dict) and kind["type"] in ("array", "map"):
        yield from _types(kind.get("items", kind.get("values")))
    else:
        yield kind


def _type(kind: Any) -> str:
    match kind:
        case list():
            return " or ".join(_type(each) for each in kind if each != "null") + (" or null" if "null" in kind else "")
        case {"type": "array", "items": items}:
            return f"array of {_type(items)}"
        case {"type": "map", "values": values}:
            return f"object of {_type(values)}"
        case {"type": "enum", "symbols": symbols}:
            return " or ".join(f"`{symbol}`" for symbol in symbols)
        case {"type": "fixed", "size": size, **more}:
            return str(more.get("logicalType", f"hex of {size} bytes"))
        case {"type": "record", "name": name}:
            return _short(name)
        case {"logicalType": logical}:
            return {"xcm_version": "0 to 5"}.get(logical, str(logical))
        case "bytes":
            return "hex"
        case str():
            return _NUMBERS.get(kind) or {"validator.Hash": "hex of 32 bytes"}.get(kind) or _short(kind)
        case _:
            return str(kind["type"])


def _default(field: Json) -> str:
    if "default" not in field:
        return "required"
    value = field["default"]
    if isinstance(value, str):
        return "0" if not value.strip("\0") and value else f"`{value}`"
    return {"null": "null", "[]": "none", "{}": "none"}.get(json.dumps(value), json.dumps(value))


def _sentence(text: str) -> str:
    """Return a schema's documentation without its source, which is for readers of the schema."""
    return re.sub(r"\s*Source: .*", "", text).replace("|", "\\|").replace("<", "\\<").strip()


def _short(name: str) -> str:
    return name.removeprefix("validator.").removeprefix("router.")
