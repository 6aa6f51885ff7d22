# SPDX-License-Identifier: Apache-2.0
"""Errors of the user: reported in one line, never as a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator import DISTRIBUTION

if TYPE_CHECKING:
    from pathlib import Path


class UserError(Exception):
    """Bad input or environment; the message names the thing, what was expected and what was found.

    The command line prints it as one line on stderr and exits with code 2.
    """


class Unavailable(UserError):
    """Something outside does not answer now, such as Kafka; the same request may succeed later (`validator.kafka.retry.passes`)."""


class GivenUp(UserError):
    """Something outside was away for longer than `[job] give_up_after`; the command line exits with code 3."""


class LeaseLost(UserError):
    """A transport is no longer the active process of its name; the command line exits with code 3."""


def not_installed(library: str, extra: str, *, for_: str) -> UserError:
    """Return the error for a library of an extra."""
    how = f"pip install '{DISTRIBUTION}[{extra}]', or `make setup EXTRAS={extra}` in a checkout"
    return UserError(f"{for_} needs {library}, which is not installed: {how}")


def written_by_newer(path: Path, expected: object, found: object) -> UserError:
    """Return the error for a kept file of a version that this program does not know; going back needs what the upgrade has replaced."""
    return UserError(
        f"{path}: expected version {expected}, found {found}: a newer version of validator has written it: continue with that one, or "
        "restore the backup from before the upgrade (docs/upgrade.md)"
    )


class PluginFailed(Exception):
    """A plugin's code raised what its contract does not allow: a bug of the plugin. The text says where, the cause is what it raised."""


def in_one_line(error: BaseException) -> str:
    """Return the kind and the text of an error that a plugin's module raised: it may raise anything."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def is_below(kind: str, wanted: str) -> bool:
    """Return whether an error's kind is the wanted one, or belongs to it: ``OutboundHrmp/NoSuchChannel`` belongs to ``OutboundHrmp``."""
    return kind == wanted or kind.startswith(f"{wanted}/")
