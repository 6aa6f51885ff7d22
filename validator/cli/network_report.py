# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of `validator simulate network --json`, derived from the types of the report."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from validator.simulate.network import Report


@dataclass(frozen=True, kw_only=True)
class Line(Report):
    """One line. `published` and `differs` are there only with --reference: the table's figures by column, and the columns that differ."""

    case: str
    published: dict[str, str] | None = None
    differs: list[str] | None = None


def json_schema() -> dict[str, Any]:
    """Return the schema; it allows no other members than those of the report."""
    schema = TypeAdapter(Line).json_schema()
    for part in (schema, *schema["$defs"].values()):
        part["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
