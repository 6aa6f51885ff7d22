# SPDX-License-Identifier: Apache-2.0
"""The build hook that compiles the hot modules of the core with mypyc; off unless HATCH_BUILD_HOOK_ENABLE_CUSTOM is true.

It needs a C compiler. The wheel then holds the extensions next to the sources, and is one of this platform. Nothing is written to the tree.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE: Final = "validator_channel"
MODULES: Final = ("crypto", "delivery", "link", "session", "wire")
"""What runs for every message. `limits`, which reads values of any type, stays interpreted: compiled code would raise ``TypeError`` before
its own checks."""


class CompileHook(BuildHookInterface):
    """Adds the extensions to a wheel; an editable installation stays pure Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile a copy of the sources. Raises ``CalledProcessError`` if mypyc or the C compiler fails."""
        if version == "editable":
            return
        self._folder = TemporaryDirectory()
        copy = Path(self._folder.name, "src")
        shutil.copytree(Path(self.root, "src"), copy, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
        sources = [f"{PACKAGE}/{name}.py" for name in MODULES]
        command = [sys.executable, "-m", "mypyc", "--config-file=", "--ignore-missing-imports", *sources]
        subprocess.run(command, cwd=copy, check=True)
        extensions = [
            each for pattern in ("*.so", "*.pyd") for each in (*copy.glob(pattern), *copy.glob(f"{PACKAGE}/{pattern}"))
        ]
        build_data["force_include"] |= {str(each): str(each.relative_to(copy)) for each in extensions}
        build_data |= {"pure_python": False, "infer_tag": True}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling calls it
        """Remove the copy."""
        if version != "editable":
            self._folder.cleanup()
