# SPDX-License-Identifier: Apache-2.0
"""Distributions with a handler plugin in a test's folder, as pip would install them or as one zip."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from zipfile import ZipFile

from validator.plugin.runtime import make_runtime

HANDLERS = """\
from validator.plugin.api import Handler, Manifest, MessageWeight, hookimpl


@hookimpl
def validator_manifest():
    return Manifest(name="{name}", version="{version}", api_version=(2, 0))


{source}

@hookimpl
def validator_handlers(config):
    for prefix, kind, handle in KINDS:
        decode = None if prefix else lambda payload: payload or None
        yield Handler(kind=kind, handle=handle, prefix=prefix, decode=decode, weight=MessageWeight(10))
"""
"""A plugin's module: ``source`` has functions and a list ``KINDS`` of (prefix, kind, function); no prefix means all but empty payloads."""


def files_of(name: str, version: str, source: str, group: str = "validator.handlers") -> dict[str, str]:
    """Return the files of a distribution for one version of a plugin, so that several versions can be installed side by side."""
    number = version.replace(".", "_")
    module, distribution = f"{name}_{number}", f"throwaway_{name}_{number}"
    info = f"{distribution}-{version}.dist-info"
    return {
        f"{module}.py": HANDLERS.format(name=name, version=version, source=source),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n",
        f"{info}/entry_points.txt": f"[{group}]\n{name}@{version} = {module}\n",
        f"{info}/RECORD": "",
    }


def install(folder: Path, files: dict[str, str]) -> Path:
    """Write files below a folder, and return it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def packed(path: Path, files: dict[str, str]) -> Path:
    """Write files into a zip, and return it."""
    with ZipFile(path, "w") as archive:
        for name in sorted(files):
            archive.writestr(name, files[name])
    return path


@contextmanager
def importable(*places: Path, without: Path | None = None) -> Iterator[None]:
    """Put folders or zips on the path, and unload their modules afterwards; ``without`` takes one off the path."""
    before, modules = list(sys.path), set(sys.modules)
    sys.path[:] = [*map(str, places), *(place for place in before if place != str(without))]
    _forget()
    try:
        yield
    finally:
        sys.path[:] = before
        roots = tuple(map(str, places))
        for name in sorted(set(sys.modules) - modules):
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(roots):
                del sys.modules[name]
        _forget()


def _forget() -> None:
    invalidate_caches()
    make_runtime.cache_clear()
