# SPDX-License-Identifier: Apache-2.0
"""Says in one sentence why an input was rejected (`sentences.toml`)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from validator.console.kept import Json
from validator.console.shown import count, plain, plural, size

_ENDS: Final = ("sender", "recipient")


@dataclass(frozen=True, slots=True)
class Why:
    """Why an input was rejected. ``observed`` and ``limit`` are the two numbers that disagree, None if the error has no such pair."""

    text: str
    then: str = ""
    observed: int | None = None
    limit: int | None = None
    is_size: bool = False
    """Whether these numbers are bytes."""


@cache
def sentences() -> dict[str, dict[str, str]]:
    """Return the sentences by kind of error."""
    return tomllib.loads(files("validator.console").joinpath("sentences.toml").read_text(encoding="utf-8"))


def why(record: Json) -> Why:
    """Return why a rejected verdict, as JSON, was rejected."""
    error = record["error"]
    words = sentences().get(error["kind"])
    if words is not None:
        try:
            text = words["text"].format_map(_fields(record["para_id"], error))
        except (KeyError, IndexError, ValueError):
            words = None
    if words is None:
        fields = ", ".join(f"{name} {plain(value)}" for name, value in error.items() if name != "kind")
        return Why(f"Rejected by the rule {error['kind']}{': ' + fields if fields else ''}.")
    then = words.get("then", "").format_map(_Lenient(_fields(record["para_id"], error)))
    observed, limit = error.get(words.get("observed", "")), error.get(words.get("limit", ""))
    if not isinstance(observed, int) or not isinstance(limit, int):
        return Why(text, then)
    return Why(text, then, observed, limit, "size" in words["observed"])


class _Lenient(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return f"the {key}"


class _Count(int):
    """A count; ``{sent:message}`` writes it with what it counts, such as ``1 message`` and ``2 messages``."""

    def __format__(self, what: str) -> str:
        return plural(int(self), what) if what else count(int(self))


def _fields(para: int, error: Json) -> dict[str, Any]:
    fields: dict[str, Any] = {"para": str(para)}
    for name, value in error.items():
        fields[name] = _shown(name, value)
        if isinstance(value, dict):
            fields |= {end: str(value[end]) for end in _ENDS if end in value}
    if isinstance(error.get("idx"), int):
        fields["at"] = count(error["idx"] + 1)
    return fields


def _shown(name: str, value: Any) -> str | _Count:
    if not isinstance(value, int) or isinstance(value, bool) or name in _ENDS or name.endswith("para_id"):
        return plain(value)
    return size(value) if "size" in name else _Count(value)
