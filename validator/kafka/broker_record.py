# SPDX-License-Identifier: Apache-2.0
"""`broker.json`: which process an embedded broker is, and whether it belongs to the folder that names it.

A folder may be moved or copied while its broker runs. The process keeps writing to the path that it was started with, so the new path must
not take it for its own.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from validator.errors import UserError
from validator.kafka.process import start_time
from validator.private import write_private

_NAME = "broker.json"

_VERSION = 1


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """The process that was started last and its ports, which a restart reuses if it can."""

    pid: int
    started: str
    port: int
    controller_port: int
    directory: str
    """The folder in which it was started, as an absolute path."""
    configured: bool = False
    """Whether a person chose the port; otherwise another one will do if it is taken."""
    own: str = ""
    """The password by which the broker knows itself in this start."""
    admits: bool = False
    """Whether the broker has answered and admits its clients; not so if its starter was killed before."""

    def runs(self) -> bool:
        """Return whether the process still runs."""
        return start_time(self.pid) == self.started

    def was_started_in(self, directory: Path) -> bool:
        """Return whether the broker was started in this folder, under whatever name."""
        try:
            return Path(self.directory).samefile(directory)
        except OSError:  # there is no such folder any more
            return False

    def has_moved_to(self, directory: Path) -> bool:
        """Return whether the folder was moved here: what it was started in is gone, or has another broker. A copy leaves it in place."""
        if self.was_started_in(directory):
            return False
        there = read_record(Path(self.directory))
        return there is None or (there.pid, there.started) != (self.pid, self.started)


def read_record(directory: Path) -> BrokerRecord | None:
    """Return the record in a broker's folder, or None if there is none. Raises `UserError` if it is damaged or newer."""
    path = directory / _NAME
    try:
        values = dict(json.loads(path.read_text(encoding="utf-8")))
        version = values.pop("version")
        unknown = sorted(values.keys() - {each.name for each in fields(BrokerRecord)})
        if version != _VERSION or unknown:
            raise UserError(
                f"{path}: a newer version of validator has written it ({', '.join([f'version {version}', *unknown])}): use that "
                "one, or stop its broker with that one and remove the file, which only names the process and its ports"
            )
        return BrokerRecord(**values)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it") from error


def keep_record(directory: Path, record: BrokerRecord) -> None:
    """Write the record of a broker's folder; only its owner can read it."""
    write_private(directory / _NAME, json.dumps({"version": _VERSION, **asdict(record)}) + "\n")
