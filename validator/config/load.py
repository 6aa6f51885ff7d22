# SPDX-License-Identifier: Apache-2.0
"""Read and check `validator.toml`; everything that is wrong with it is told at once."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import ValidationError

from validator.config.environment import EnvironmentSource
from validator.config.model import Config
from validator.errors import UserError
from validator.tables import dotted

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DEFAULT_PATH: Final = Path("validator.toml")


def load_config(path: str | Path | None = None) -> Config:
    """Return the configuration of a file, the environment over it.

    Without a path it is `./validator.toml` if that exists, else the defaults. Raises `UserError` that lists, one a line, every unknown key
    with what it may have meant, and every wrong value with its key, what was expected and what was found.
    """
    file = DEFAULT_PATH if path is None else Path(path)
    tables = {} if path is None and not file.exists() else _read(file)
    try:
        return Config(**tables)
    except ValidationError as error:
        origin = str(file) if tables else "environment"
        lines = [f"{_origin(each, origin)}: {_explain(each)}" for each in error.errors(include_url=False)]
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
    """Say whether the environment or the file holds the value."""
    there: Any = EnvironmentSource(Config)()
    for name in error["loc"]:
        if not isinstance(there, dict) or name not in there:
            return file
        there = there[name]
    return "environment"


def _explain(error: ErrorDetails) -> str:
    location = error["loc"]
    path = _path(location[:-1] if location[-1] == "[key]" else location)
    if error["type"] == "extra_forbidden":
        known = sorted(_names_at(location[:-1]))
        close = get_close_matches(str(location[-1]), known, 1)
        return f"{path}: no such key; " + (f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}")
    if error["type"] == "missing":
        return f"{path}: expected a value, found none"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{path}: {message}"
    expected = (
        message.removeprefix("Input should be ").replace("a valid integer", "an integer").replace("a valid ", "a ")
    )
    if error["type"] in ("model_type", "dict_type"):
        expected = "a table"
    elif error["type"] == "string_pattern_mismatch":
        expected = f"{'a name' if location[-1] == '[key]' else 'text'} that matches {error['ctx']['pattern']}"
    elif expected.startswith(("greater", "less")):
        expected = f"a number {expected}"
    found = repr(error["input"])
    return f"{path}: expected {expected}, found {found if len(found) <= 60 else found[:57] + '...'}"


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def _names_at(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys that the table at a place may have."""
    there: Any = Config
    for part in location:
        # a field of a table, else an entry of a table of tables or of a list of them
        fields = getattr(there, "model_fields", None)
        there = get_args(there)[-1] if fields is None else fields[part].annotation
    return list(there.model_fields)
