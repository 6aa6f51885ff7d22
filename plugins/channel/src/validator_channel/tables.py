# SPDX-License-Identifier: Apache-2.0
"""Reads TOML files strictly: each key has a type, and every problem becomes a line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from validator_channel.crypto import NO_PSK
from validator_channel.errors import cut
from validator_channel.net.certificates import read_psk
from validator_channel.wire import parse_id

_PIN: Final = re.compile(r"[0-9a-f]{64}")
PIN_EXPECTED: Final = "64 lower-case hex digits"


class ConfigError(Exception):
    """A file that cannot be used; ``problems`` are lines of file, key, what was expected and what was found."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_toml(path: Path, bytes_max: int) -> dict[str, Any]:
    """Return the tables of a file. Raises `ConfigError`: for a file that cannot be read, is too long or is not TOML."""
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
        if len(data) > bytes_max:
            raise ConfigError(f"{path}: expected at most {bytes_max} bytes")
        return tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number without end, or nested too deeply
        raise ConfigError(f"{path}: expected TOML: {error}") from None


class Table:
    """A table with known keys; ``problems`` grows with each value that is not as expected, in lines that begin with ``begins``."""

    def __init__(self, begins: str, values: Mapping[str, Any], keys: Collection[str]) -> None:
        self.begins = begins
        self.values = values
        self.problems = [
            f"{begins}{key}: no such key, expected one of {', '.join(keys)}" for key in values if key not in keys
        ]

    def problem(self, key: str, expected: str) -> None:
        """Note that a key's value is not what was expected."""
        found = cut(self.values[key], 60) if key in self.values else "nothing"
        self.problems.append(f"{self.begins}{key}: expected {expected}, found {found}")

    def peer(self, key: str) -> int | None:
        try:
            return parse_id(str(self.values.get(key)))
        except ValueError:
            self.problem(key, "32 lower-case hex digits")
            return None

    def text(self, key: str, expected: str = "text", *, required: bool = False) -> str | None:
        value = self.values.get(key)
        if isinstance(value, str) or (value is None and not required):
            return value
        self.problem(key, expected)
        return None

    def psk(self, read: Callable[[Path], bytes] = read_psk, expected: str = "text") -> bytes:
        """Return the pre-shared key in the file under ``psk_file``; ``read`` raises ``ValueError``."""
        path = self.text("psk_file", expected)
        if path is None:
            return NO_PSK
        try:
            return read(Path(path))
        except ValueError as error:
            self.problems.append(f"{self.begins}psk_file: {error}")
            return NO_PSK


def is_pin(value: object) -> bool:
    """Return whether a value is a SHA-256 digest in hex."""
    return isinstance(value, str) and _PIN.fullmatch(value) is not None
