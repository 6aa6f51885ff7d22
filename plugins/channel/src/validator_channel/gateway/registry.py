# SPDX-License-Identifier: Apache-2.0
"""The registry of peers, `peers.toml`: read strictly, with one line for each problem. Source: channel_rules 3.1, 3.4, 5.2."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from validator_channel.gateway.entry import Entry, read_entry
from validator_channel.gateway.limits import PEERS_MAX, REGISTRY_BYTES_MAX
from validator_channel.gateway.policy import PeerPolicy
from validator_channel.ids import format_channel
from validator_channel.psk_file import read_psk


class RegistryError(Exception):
    """A registry that cannot be used; ``problems`` are lines of file, peer, key, what was expected and what was found."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_registry(path: Path) -> dict[int, PeerPolicy]:
    """Return the peers of a registry by channel ID; files that it names are relative to its folder.

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
        entry = Entry(f"{path}: peers.{name}", table, lambda file: read_psk(path.parent / file))
        policy = read_entry(name, entry)
        problems += entry.problems
        policies += [policy] if policy is not None else []
    problems += _shared(path, policies)
    if problems:
        raise RegistryError(problems)
    return {policy.channel: policy for policy in policies}


class RegistryFile:
    """The registry as a file that may change; a file that cannot be used leaves the peers as they were."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises `RegistryError`."""
        self._path = path
        self._seen = self._stamp()
        self.peers: Mapping[int, PeerPolicy] = read_registry(path)
        self.problems: list[str] = []
        """What is wrong with the file as it is now, while older peers hold."""

    def poll(self) -> bool:
        """Read the file if it has changed since the last call, and return whether it has; `problems` says if it is broken."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self.peers = read_registry(self._path)
            self.problems = []
        except RegistryError as error:
            self.problems = error.problems
        return True

    def _stamp(self) -> tuple[Any, ...]:
        try:
            found = self._path.stat()
        except OSError as error:
            return (error.errno,)
        return found.st_ino, found.st_size, found.st_mtime_ns


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
