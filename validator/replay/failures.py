# SPDX-License-Identifier: Apache-2.0
"""Says in one line where a protocol's plugin has a bug: an exception of its code that is no verdict and no refused file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

from validator.errors import PluginFailed, UserError
from validator.plugin.registry import Found, discover

if TYPE_CHECKING:
    from validator.plugin.protocol_api import ProtocolDefinition


@contextmanager
def failures_of(
    protocol: ProtocolDefinition, where: str, *, passes: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise `PluginFailed` for an exception of the protocol's code, which was asked for ``where``; ``passes`` are raised unchanged."""
    unchanged: tuple[type[Exception], ...] = (PluginFailed, *passes)
    try:
        yield
    except unchanged:
        raise
    except Exception as error:
        raise PluginFailed(f"{where}: {described(protocol.name, error)}") from error


@contextmanager
def failures_of_reader(protocol: ProtocolDefinition, where: str) -> Iterator[None]:
    """Do the same for code that reads a file, which refuses it with a `UserError`."""
    with failures_of(protocol, where, passes=(UserError,)):
        yield


def described(protocol: str, error: Exception) -> str:
    """Return in one line what a protocol's plugin has raised, and where."""
    found = next((each for each in discover("validator.protocols") if each.name == protocol), None)
    owner = "" if found is None else f" of {found.distribution} {found.distribution_version}"
    text = " ".join(str(error).split())
    return (
        f"plugin {protocol}{owner} raised {type(error).__name__} at {_place(found, error)}{f': {text}' if text else ''}"
    )


def _place(found: Found | None, error: Exception) -> str:
    """Return file and line: the last ones in the plugin's own package, else where the exception was raised."""
    package = "" if found is None else found.value.partition(":")[0].partition(".")[0]
    frames = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
    ]
    own = [frame for frame in frames if package and frame[0].partition(".")[0] == package]
    _, file, line = (own or frames)[-1]
    parts = Path(file).parts
    start = max((at for at, part in enumerate(parts) if part in (package, f"{package}.py")), default=len(parts) - 1)
    return f"{Path(*parts[start:])}:{line}"
