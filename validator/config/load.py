# SPDX-License-Identifier: Apache-2.0
"""Reads and checks `validator.toml`; all errors are reported at once."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin

from pydantic import ValidationError

from validator.config.explain import explain
from validator.config.model import Config
from validator.errors import UserError
from validator.tables import dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pydantic_core import ErrorDetails


DEFAULT_PATH: Final = Path("validator.toml")


def load_config(path: str | Path | None = None) -> Config:
    """Return the configuration of a file, overridden by the environment.

    Without a path it is `./validator.toml` if that exists, else the defaults. Raises `UserError` that lists, one per line, every unknown
    key with a suggestion, and every wrong value with its key, what was expected and what was found.
    """
    file = DEFAULT_PATH if path is None else Path(path)
    try:
        tables = {} if path is None and not file.exists() else _read(file)
        return Config(**overridden(tables, environment_tables(Config.model_fields, _takes_text)))
    except RecursionError:
        raise UserError(f"{file}: expected tables and arrays that are not nested as deeply") from None
    except ValidationError as error:
        origin = str(file) if tables else "environment"
        lines = [f"{_origin(each, origin)}: {explain(each, names_at)}" for each in error.errors(include_url=False)]
        raise UserError("\n".join(lines)) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{file}: the configuration cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise UserError(f"{file}: expected TOML: {error}") from error
    if isinstance(kafka := tables.get("kafka"), dict):
        tables["kafka"] = dotted(kafka)
    chains = tables.get("chains")
    for chain in chains.values() if isinstance(chains, dict) else ():
        if isinstance(chain, dict) and isinstance(state := chain.get("state"), str):
            chain["state"] = str(file.parent / state)
    if isinstance(plugins := tables.get("plugins"), dict):
        if isinstance(lock := plugins.get("lock"), str) and lock:
            plugins["lock"] = str(file.parent / lock)
        if isinstance(artefacts := plugins.get("artefacts"), list):
            plugins["artefacts"] = [str(file.parent / each) if isinstance(each, str) else each for each in artefacts]
    return tables


def _origin(error: ErrorDetails, file: str) -> str:
    """Return where a value comes from: the environment or the file."""
    there: Any = environment_tables(Config.model_fields)
    for name in error["loc"]:
        if not isinstance(there, dict) or name not in there:
            return file
        there = there[name]
    return "environment"


def _entry(kind: Any) -> Any:
    """Return the type of the entries of a list or of a table."""
    return get_args(kind)[-1]


def names_at(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that the table at a location may have."""
    return list(_kind_at(location).model_fields)


def _takes_text(location: Sequence[str]) -> bool:
    """Return whether a key takes text; False for one that does not exist."""
    try:
        return _kind_at(location) is str
    except LookupError:
        return False


def _kind_at(location: Sequence[int | str]) -> Any:
    """Return the type at a location. Raises `LookupError` if nothing can be there."""
    there: Any = Config
    for part in location:
        # a field of a table, else an entry of a table or list of tables
        fields = getattr(there, "model_fields", None)
        there = _entry(there) if fields is None else fields[part].annotation
        if type(None) in get_args(there):  # an optional one
            (there,) = (each for each in get_args(there) if each is not type(None))
        if get_origin(there) is Annotated:
            there = get_args(there)[0]
    return there


PREFIX: Final = "VALIDATOR_"
DELIMITER: Final = "__"


def environment_tables(
    keys: Collection[str], takes_text: Callable[[Sequence[str]], bool] = lambda _: False
) -> dict[str, Any]:
    """Return the nested tables that the environment sets; ``keys`` are the names of all tables.

    ``VALIDATOR_<table>__<key>=<value>``, likewise for nested tables; a variable named after a whole table takes JSON. Unknown names are
    passed on, so that a typing error in a variable is reported like one in the file. A variable with the prefix but neither a table's name
    nor ``__`` is not a configuration key. A number is text where ``takes_text`` says that a key, by its path, takes text. In Kafka's
    dotted keys, ``__`` stands for the dot: ``VALIDATOR_KAFKA__BOOTSTRAP__SERVERS``.

    Raises `UserError` if VALIDATOR_KAFKA is no JSON object.
    """
    found: dict[str, Any] = {}
    for variable in sorted(os.environ):
        if not variable.upper().startswith(PREFIX):
            continue
        path = variable[len(PREFIX) :].lower().split(DELIMITER)
        if len(path) == 1 and path[0] not in keys:
            continue
        value = _value(os.environ[variable])
        if path == ["kafka"]:
            if not isinstance(value, dict):
                # without what was found, which may have a password
                raise UserError(f"{variable}: expected a JSON object of Kafka's options")
            value = dotted(value)
        elif path[0] == "kafka":
            # librdkafka takes text, and a password may look like a number
            path, value = ["kafka", ".".join(path[1:])], os.environ[variable]
        elif path[0] == "schema_registry" and len(path) > 1:
            value = os.environ[variable]  # all its values are text
        elif value is not None and takes_text(path):
            value = value if isinstance(value, str) else os.environ[variable]
        table = found
        for name in path[:-1]:
            below = table.setdefault(name, {})
            table[name] = table = below if isinstance(below, dict) else {}
        table[path[-1]] = value
    return found


def overridden(tables: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables with the values of others in their places."""
    merged = dict(tables)
    for key, value in by.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = overridden(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
