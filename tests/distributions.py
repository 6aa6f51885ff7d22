# SPDX-License-Identifier: Apache-2.0
"""Distributions in a test's folders, as pip would install them or as one zip."""

from __future__ import annotations

import base64
import hashlib
import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path
from textwrap import dedent
from zipfile import ZipFile

from validator.plugin.runtime import make_runtime

_numbers = itertools.count()

IMPORTS = "from validator.plugin.api import *\n"
MANIFEST = '@hookimpl\ndef validator_manifest():\n    return Manifest("{name}", "{version}", (2, 0))\n'
HANDLERS = """\
@hookimpl
def validator_handlers(config):
    yield Handler("{kind}", lambda context, payload: None, MessageWeight(1), prefix=bytes.fromhex("{prefix}"))
"""
SEVERAL_HANDLERS = """\
@hookimpl
def validator_handlers(config):
    for prefix, kind, handle in KINDS:
        decode = None if prefix else lambda payload: payload or None
        yield Handler(kind=kind, handle=handle, prefix=prefix, decode=decode, weight=MessageWeight(10))
"""
"""The handlers of a module with a list ``KINDS`` of (prefix, kind, function); no prefix means all but empty payloads."""


def plugin_source(name: str, version: str = "1.0.0", kind: str | None = None, prefix: str = "01") -> str:
    """Return a working module of group ``validator.handlers``."""
    return IMPORTS + MANIFEST.format(name=name, version=version) + HANDLERS.format(kind=kind or name, prefix=prefix)


def distribution_files(
    distribution: str,
    version: str,
    modules: Mapping[str, str],
    entry_points: str,
    *,
    requires: tuple[str, ...] = (),
    files: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Return the files of a distribution with a RECORD."""
    info = f"{distribution.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    contents = {
        **{f"{module}.py": dedent(source).encode() for module, source in modules.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points.encode(),
        **(files or {}),
    }
    record = ""
    for path, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(content)}\n"
    return {**contents, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}


def files_of(name: str, version: str, source: str, group: str = "validator.handlers") -> dict[str, bytes]:
    """Return the files of one version of a plugin with `SEVERAL_HANDLERS`, so that several versions can be installed side by side."""
    number = version.replace(".", "_")
    module = f"{name}_{number}"
    text = f"{IMPORTS}{MANIFEST.format(name=name, version=version)}\n{source}\n{SEVERAL_HANDLERS}"
    return distribution_files(
        f"throwaway_{module}", version, {module: text}, f"[{group}]\n{name}@{version} = {module}\n"
    )


def install(
    folder: Path,
    name: str,
    source: str,
    *,
    distribution: str | None = None,
    version: str = "1.0.0",
    entry_name: str | None = None,
    group: str = "validator.handlers",
    requires: tuple[str, ...] = (),
    files: dict[str, bytes] | None = None,
) -> str:
    """Write a distribution with one module and one entry point; return the module's name, which is unique."""
    module = f"plugin_{next(_numbers)}"
    entry = f"[{group}]\n{entry_name or name} = {module}\n"
    made = distribution_files(
        distribution or f"dist-{name}", version, {module: source}, entry, requires=requires, files=files
    )
    written(folder, made)
    return module


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a folder, and return it."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def packed(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write files into a zip, and return it."""
    with ZipFile(path, "w") as archive:
        for name in sorted(files):
            archive.writestr(name, files[name])
    return path


@contextmanager
def on_path(*places: Path, without: Path | None = None) -> Iterator[None]:
    """Put folders or zips at the start of the path, in this order, and unload their modules afterwards; ``without`` takes one off the path.

    Their bytecode is not kept: a module that a test writes again within a second, in as many bytes, would be taken for the earlier one.
    """
    before, modules, bytecode = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path[:] = [*map(str, places), *(place for place in before if place != str(without))]
    _forget()
    try:
        yield
    finally:
        sys.path[:], sys.dont_write_bytecode = before, bytecode
        roots = tuple(map(str, places))
        for name in sorted(set(sys.modules) - modules):
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(roots):
                del sys.modules[name]
        _forget()


def _forget() -> None:
    invalidate_caches()
    make_runtime.cache_clear()
