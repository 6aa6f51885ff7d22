# SPDX-License-Identifier: Apache-2.0
"""The installation of Spark that a job on one machine starts: pyspark's, without the archives of its Python packages.

Spark puts those archives on the path of each Python process that it starts, before the installed packages. They have no bytecode, so every
process would compile what it imports of pyspark: 0.7 s of processor time, three times one after the other before the first batch.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from validator.resources import cache_directory

HOME_VARIABLE: Final = "SPARK_HOME"
"""The environment variable by which Spark's scripts and its JVM find the installation."""

_NEEDED: Final = ("bin", "jars")


def installed_spark() -> Path | None:
    """Return the folder of pyspark, None if it is not installed."""
    spec = find_spec("pyspark")  # located, not imported
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]).resolve()


def lean_home(spark: Path) -> Path:
    """Return the place of the folder that has only the needed folders of an installation."""
    name = hashlib.sha256(str(spark).encode()).hexdigest()[:12]
    return cache_directory() / "spark" / name


def make_lean_home(spark: Path) -> Path:
    """Make that folder, of symbolic links, if it is missing, and return it. Raises `OSError`."""
    home = lean_home(spark)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in _NEEDED:
        with suppress(FileExistsError):
            (home / name).symlink_to(spark / name, target_is_directory=True)
    return home


def use_lean_home() -> None:
    """Let this process start Spark from that folder, unless the user has named another installation, or the folder cannot be made."""
    spark = installed_spark()
    named = os.environ.get(HOME_VARIABLE)
    if spark is None or (named is not None and Path(named).resolve() != spark):
        return
    with suppress(OSError):
        os.environ[HOME_VARIABLE] = str(make_lean_home(spark))
