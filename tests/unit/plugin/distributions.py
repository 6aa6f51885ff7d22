# SPDX-License-Identifier: Apache-2.0
"""Distributions in a test's folders, as pip would install them."""

from __future__ import annotations

import base64
import hashlib
import importlib
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from validator.plugin.runtime import make_runtime

_numbers = itertools.count()

IMPORTS = "from validator.plugin.api import *\n"
MANIFEST = '@hookimpl\ndef validator_manifest():\n    return Manifest("{name}", "{version}", (2, 0))\n'
HANDLERS = """\
@hookimpl
def validator_handlers(config):
    yield Handler("{kind}", lambda context, payload: None, MessageWeight(1), prefix=bytes.fromhex("{prefix}"))
"""


def plugin_source(name: str, version: str = "1.0.0", kind: str | None = None, prefix: str = "01") -> str:
    """Return a working module of group ``validator.handlers``."""
    return IMPORTS + MANIFEST.format(name=name, version=version) + HANDLERS.format(kind=kind or name, prefix=prefix)


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
    """Write a distribution with one module, one entry point and a RECORD; return the module's name, which is unique."""
    module = f"plugin_{next(_numbers)}"
    distribution = distribution or f"dist-{name}"
    info = f"{distribution.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    contents = {
        f"{module}.py": dedent(source).encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[{group}]\n{entry_name or name} = {module}\n".encode(),
        **(files or {}),
    }
    record = ""
    for path, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(content)}\n"
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return module


@contextmanager
def on_path(*folders: Path) -> Iterator[None]:
    """Put folders or archives at the start of the path, in this order; afterwards unload the modules imported from them.

    Their bytecode is not kept: a module that a test writes again within a second, in as many bytes, would be taken for the earlier one.
    """
    before, modules, bytecode = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    sys.path[:0] = map(str, folders)
    importlib.invalidate_caches()
    make_runtime.cache_clear()
    try:
        yield
    finally:
        sys.path[:], sys.dont_write_bytecode = before, bytecode
        for name in set(sys.modules) - modules:
            if name.startswith("plugin_"):
                del sys.modules[name]
        importlib.invalidate_caches()
        make_runtime.cache_clear()
