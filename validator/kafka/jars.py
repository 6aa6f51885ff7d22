# SPDX-License-Identifier: Apache-2.0
"""Fetches the jars of the broker and of Kafka's tools, once per user.

Apache Ivy, which pyspark ships, resolves `ivy/broker.xml`: exact versions, nothing transitive. Every jar must have the sha256 of
`ivy/broker.sha256`. No host is named here: Ivy uses its default repository, or the one in the user's own Ivy settings
(`VALIDATOR_IVY_SETTINGS`, a file; proxies: `JAVA_TOOL_OPTIONS`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.errors import UserError, not_installed
from validator.kafka.java import find_java
from validator.private import alone
from validator.resources import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str, int, int], None]
    """Called after each jar with (jar, jars fetched so far, jars needed)."""

_IVY: Final = Path(__file__).resolve().parent / "ivy"
BROKER: Final = _IVY / "broker.xml"


def ensure_jars(wanted: Path = BROKER, *, cache: Path | None = None, progress: Progress | None = None) -> list[Path]:
    """Return the files that an Ivy file names, sorted by name; fetch them if the cache lacks them, and verify them either way.

    Their sums stand next to the Ivy file. Errors, in order: no Java, no pyspark (which has Ivy), repository unreachable, checksum mismatch.
    All are `UserError`.
    """
    sums = read_sums(wanted)
    root = (cache or cache_directory()) / "jars"
    # The name depends on the folder's contents: a new version of the product never sees an old version's jars.
    identity = hashlib.sha256(repr(sorted(sums.items())).encode()).hexdigest()[:12]
    folder = root / f"{wanted.stem}-{identity}"
    if not folder.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with alone(root / f"{wanted.stem}.lock", 0o644):  # users may share the cache
            if not folder.is_dir():
                _fetch(wanted, folder, len(sums), progress)
    _verify(folder, sums)
    return [folder / name for name in sorted(sums)]


def read_sums(wanted: Path = BROKER) -> dict[str, str]:
    """Return the sha256 of each file, by its name."""
    lines = wanted.with_suffix(".sha256").read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _verify(folder: Path, sums: dict[str, str]) -> None:
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"{path} is missing: remove {folder} to fetch it again")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != expected:
            raise UserError(
                f"{path} is not the published jar: expected sha256 {expected}, found {found}; "
                f"remove {folder} to fetch it again"
            )


def _fetch(wanted: Path, folder: Path, count: int, progress: Progress | None) -> None:
    """Let Ivy fill the folder, which gets its final name only when complete."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    settings = os.environ.get("VALIDATOR_IVY_SETTINGS") or str(_IVY / "settings.xml")
    ivy_cache = folder.with_name(f"{wanted.stem}.ivy")  # kept after a failure: the next attempt resumes from there
    command: list[str | Path] = [
        *(find_java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", _ivy_jar(), "org.apache.ivy.Main"),
        *("-settings", settings, "-ivy", wanted, "-cache", ivy_cache, "-types", "jar"),
        *("-retrieve", partial / "[artifact]-[revision].[ext]"),
    ]
    log: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        for line in ivy.stdout or ():
            log.append(line.rstrip())
            done = re.search(r"\[SUCCESSFUL \] \S+#(\S+);([^;!]+)!", line)
            if done and progress:
                progress(f"{done[1]} {done[2]}", sum("[SUCCESSFUL ]" in each for each in log), count)
    log_file = folder.with_name(f"{wanted.stem}.log")
    log_file.write_text("\n".join(log) + "\n", encoding="utf-8")
    if ivy.returncode != 0:
        raise UserError(
            f"the {wanted.stem} jars could not be fetched ({_reason(log)}): go online and run `validator jars`, "
            f"or name a mirror in the Ivy settings file of VALIDATOR_IVY_SETTINGS; Ivy's log is {log_file}"
        )
    partial.rename(folder)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _reason(log: list[str]) -> str:
    """Return the line of Ivy's log that best explains a failure."""
    for pattern in (r"\((\S+Exception: .*)\)", r":: (\S+#\S+: .*not found)", r"((?:Error|Exception).*)"):
        for line in log:
            match = re.search(pattern, line)
            if match:
                return match[1]
    return next((line.strip() for line in reversed(log) if line.strip()), "Ivy logged nothing")


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # located, not imported
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(location, "jars").glob("ivy-*.jar")):
            return jar
    raise not_installed("pyspark", "spark", for_="fetching the jars")
