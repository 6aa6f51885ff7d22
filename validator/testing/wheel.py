# SPDX-License-Identifier: Apache-2.0
"""A distribution's wheel as an archive that Python imports from."""

from __future__ import annotations

import json
import shutil
import zipfile
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlparse

from validator.testing.case import Broken, NotApplicable, run_python


def archive_of(distribution: Distribution, folder: Path) -> Path:
    """Return a .zip below ``folder`` with what a distribution's wheel holds: the files installed, or what an editable one builds.

    Raises `NotApplicable` where there is neither, `Broken` where the source does not build.
    """
    archive = folder / f"{distribution.metadata['Name']}-{distribution.version}.zip"
    source = _editable_source(distribution)
    if source is not None:
        shutil.copyfile(_build(source, folder), archive)
        return archive
    files = [file for file in distribution.files or () if not str(file).startswith("..") and file.suffix != ".pyc"]
    if not files:
        raise NotApplicable("its distribution does not list its files")
    with zipfile.ZipFile(archive, "w") as out:
        for file in sorted(files, key=str):
            out.write(str(file.locate()), str(file))
    return archive


def _editable_source(distribution: Distribution) -> Path | None:
    told = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not told.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlparse(told["url"]).path))


def _build(source: Path, folder: Path) -> Path:
    if find_spec("pip") is None:
        raise NotApplicable("it is installed editable, and there is no pip to build its wheel")
    arguments = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder), str(source)]
    run = run_python(["-m", "pip", "wheel", *arguments], cwd=folder)
    wheels = sorted(folder.glob("*.whl"))
    if run.returncode != 0 or not wheels:
        raise Broken(f"{source.name}: its wheel does not build:\n{run.stderr.strip()}")
    return wheels[0]
