# SPDX-License-Identifier: Apache-2.0
"""The registry of peers, `peers.toml`: read strictly, with one line for each problem. Source: channel_rules 3.1, 3.4, 5.2."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from validator_channel.gateway.entry import Entry, read_entry
from validator_channel.gateway.limits import PEERS_MAX, REGISTRY_BYTES_MAX
from validator_channel.gateway.policy import PeerPolicy
from validator_channel.ids import format_channel
from validator_channel.psk_file import read_psk

Stamp: TypeAlias = tuple[int | None, ...]
"""What changes with a file."""


class RegistryError(Exception):
    """A registry that cannot be used; ``problems`` are lines of file, peer, key, what was expected and what was found."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_registry(path: Path, read_key: Callable[[Path], bytes] = read_psk) -> dict[int, PeerPolicy]:
    """Return the peers of a registry by channel ID; files that it names are relative to its folder.

    ``read_key`` returns the pre-shared key in a file; it raises ``ValueError``.

    Raises `RegistryError`: for a file that cannot be read, is too long or is not TOML; otherwise with all problems of all peers, also
    channels that two of them share.
    """
    document = _document(path)
    problems = [
        f"{path}: {key}: no such key, expected tables [peers.NAME]" for key in sorted(document) if key != "peers"
    ]
    tables = document.get("peers", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise RegistryError([*problems, f"{path}: peers: expected tables [peers.NAME]"])
    if len(tables) > PEERS_MAX:
        raise RegistryError([*problems, f"{path}: peers: expected at most {PEERS_MAX}, found {len(tables)}"])
    policies = []
    for name, table in tables.items():
        entry = Entry(f"{path}: peers.{name}", table, lambda file: read_key(path.parent / file))
        policy = read_entry(name, entry)
        problems += entry.problems
        policies += [policy] if policy is not None else []
    problems += _shared(path, policies)
    if problems:
        raise RegistryError(problems)
    return {policy.channel: policy for policy in policies}


class RegistryFile:
    """The registry and the pre-shared keys that it names, as files that may change; those that cannot be used change nothing."""

    def __init__(self, path: Path) -> None:
        """Read the files. Raises `RegistryError`."""
        self._path = path
        self._seen: dict[Path, Stamp] = {}
        self.peers: Mapping[int, PeerPolicy] = self._read()
        self.problems: list[str] = []
        """What is wrong with the file as it is now, while older peers hold."""

    def poll(self) -> bool:
        """Read the files if one has changed since the last call, and return whether one has; `problems` says if they are broken."""
        if all(_stamp(path) == stamp for path, stamp in self._seen.items()):
            return False
        try:
            self.peers = self._read()
            self.problems = []
        except RegistryError as error:
            self.problems = error.problems
        return True

    def _read(self) -> dict[int, PeerPolicy]:
        """Read all files, each after a look at its stamp, so that no later change is missed."""
        self._seen = {self._path: _stamp(self._path)}
        return read_registry(self._path, self._read_key)

    def _read_key(self, path: Path) -> bytes:
        self._seen[path] = _stamp(path)
        return read_psk(path)


def _stamp(path: Path) -> Stamp:
    """Return what changes with a file: its mode, too, since others must not be able to read a key."""
    try:
        found = path.stat()
    except OSError as error:
        return (error.errno,)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(REGISTRY_BYTES_MAX + 1)
        if len(data) > REGISTRY_BYTES_MAX:
            raise RegistryError([f"{path}: expected at most {REGISTRY_BYTES_MAX} bytes"])
        return tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise RegistryError([f"{path}: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryError([f"{path}: expected TOML: {error}"]) from None


def _shared(path: Path, policies: list[PeerPolicy]) -> list[str]:
    """Return a problem for each channel that several peers name."""
    counts = Counter(policy.channel for policy in policies)
    problems = []
    for channel in (channel for channel, count in counts.items() if count > 1):
        names = ", ".join(f"peers.{each.name}" for each in policies if each.channel == channel)
        problems.append(
            f"{path}: {names}: expected a channel for each, found {format_channel(channel)} for all of them"
        )
    return problems
