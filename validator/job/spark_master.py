# SPDX-License-Identifier: Apache-2.0
"""What can be known of `[job] master` without Spark."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEME: Final = "spark://"

SECRET_OPTION: Final = "spark.authenticate.secret"  # noqa: S105 - its name

_HAS_SECRET: Final = re.compile(rf"^[ \t]*{re.escape(SECRET_OPTION)}[ \t]*[ \t=:][ \t]*\S", re.MULTILINE)


def is_standalone(master: str) -> bool:
    """Return whether this is the address of a standalone master."""
    return master.startswith(SCHEME)


def without_secret(master: str) -> UserError:
    """Return the error for a job that does not know its cluster's secret."""
    return UserError(
        f"[job] master {master}: expected the cluster's {SECRET_OPTION} in spark-defaults.conf, found none: the job does not use a cluster "
        "that admits everybody"
    )


def check_secret(master: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise `UserError` if a job on a standalone cluster has no secret, which Spark itself would say after its start."""
    if not is_standalone(master) or SECRET_OPTION in environment.get("PYSPARK_SUBMIT_ARGS", ""):
        return
    try:
        found = any(
            _HAS_SECRET.search(path.read_text(errors="replace")) for path in _defaults(environment) if path.exists()
        )
    except OSError:  # Spark says what it cannot read
        return
    if not found:
        raise without_secret(master)


def _defaults(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that Spark may read its options from."""
    name = "spark-defaults.conf"
    if environment.get("SPARK_CONF_DIR"):
        yield Path(environment["SPARK_CONF_DIR"]) / name
        return
    if environment.get("SPARK_HOME"):
        yield Path(environment["SPARK_HOME"]) / "conf" / name
    spec = find_spec("pyspark")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield Path(folder) / "conf" / name
