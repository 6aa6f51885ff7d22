# SPDX-License-Identifier: Apache-2.0
"""Values of any Avro schema, by chance."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from fastavro import schemaless_writer

from validator.codec.strict import named_types

if TYPE_CHECKING:
    from random import Random

_LONGS = (0, 1, -1, 63, 64, -64, -65, 8_191, 8_192, 2**31, 2**32 - 1, 2**63 - 1, -(2**63))
_TEXTS = ("", "a", "polkadot", "\u00e9\U0001f600", "x" * 64)


def datum_of(schema: Any, rng: Random) -> Any:
    """Return a value of a schema in the form that fastavro takes."""
    return _Values(schema, rng).value(schema)


def written(schema: Any, datum: Any) -> bytes:
    """Return a value's bytes as fastavro writes them."""
    stream = BytesIO()
    schemaless_writer(stream, schema, datum)
    return stream.getvalue()


class _Values:
    def __init__(self, schema: Any, rng: Random) -> None:
        self.named = named_types(schema)
        self.rng = rng

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            branch = self.resolved(self.rng.choice(schema))
            value = self.value(branch)
            return (branch["name"], value) if branch["type"] == "record" else value
        schema = self.resolved(schema)
        match schema["type"]:
            case "record":
                return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
            case "array":
                return [self.value(schema["items"]) for _ in range(self.rng.choice((0, 1, 2, 3)))]
            case "map":
                return {
                    self.rng.choice(_TEXTS): self.value(schema["values"]) for _ in range(self.rng.choice((0, 1, 2)))
                }
            case "enum":
                return self.rng.choice(schema["symbols"])
            case "fixed":
                return self.rng.randbytes(schema["size"])
            case "null":
                return None
            case "boolean":
                return self.rng.random() < 0.5
            case "string":
                return self.rng.choice(_TEXTS)
            case "bytes":
                return self.rng.randbytes(self.rng.choice((0, 1, 32, 70)))
            case _:
                return self.rng.choice(_LONGS)

    def resolved(self, schema: Any) -> dict[str, Any]:
        if isinstance(schema, str):
            schema = self.named.get(schema, {"type": schema})
        return schema if isinstance(schema["type"], str) else self.resolved(schema["type"])
