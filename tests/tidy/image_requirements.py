# SPDX-License-Identifier: Apache-2.0
"""Makes the list of what the container image installs, each with the hash of its archive.

It lists what the product and its plugins need to run the job and the console, by the metadata of this environment, and the build backends.
Versions and hashes come from `constraints.sha256`, which is for CPython 3.11 on Linux x86-64.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.sbom import archive_hashes
from tests.tidy.tree import ROOT

FOLDER = ROOT / "deploy" / "image"
RUN, BUILD = FOLDER / "requirements.txt", FOLDER / "requirements-build.txt"
EXTRAS = ("console", "spark")
BACKENDS = ("editables", "hatchling", "setuptools", "wheel")
"""What builds this project and pyspark."""

HEADING = "# Made by `make generate`, for CPython 3.11 on Linux x86-64.\n"


def own() -> tuple[str, ...]:
    """Return the names of the distributions of this tree."""
    return ("validator", *(f"validator-{path.parent.name}" for path in sorted(ROOT.glob("plugins/*/pyproject.toml"))))


def needed(wanted: Iterator[Requirement], *, without: frozenset[str] = frozenset()) -> set[str]:
    """Return the normal names of all distributions that some requirements need, except those of ``without``."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    left = list(wanted)
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found |= set() if name in without else {name}
            below = map(Requirement, distribution(name).requires or ())
            left += [each for each in below if each.marker is None or each.marker.evaluate({"extra": extra})]
    return found


def rendered(names: set[str]) -> str:
    """Return a requirements file with exact versions and hashes."""
    pins = {pin.partition("==")[0]: (pin, digest) for pin, digest in archive_hashes().items()}
    lines = (f"{pins[name][0]} --hash=sha256:{pins[name][1]}\n" for name in sorted(names))
    return HEADING + "".join(lines)


def made() -> dict[Path, str]:
    """Return each file, or none where the interpreter is another one than the image's."""
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        return {}
    ours = frozenset(map(canonicalize_name, own()))
    run = needed(iter([Requirement(f"validator[{','.join(EXTRAS)}]"), *map(Requirement, own())]), without=ours)
    build = needed(map(Requirement, BACKENDS))
    return {RUN: rendered(run - build), BUILD: rendered(build)}
