# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.tidy.requirements`: writes requirements.txt again; `--freeze FILE` with the versions of a `pip freeze --all`.

Each line pins one distribution, with the SHA-256 of its archives for Linux and macOS and CPython 3.11 to 3.14, and names after ``#`` who
needs it: `run` (the program and its plugins), `build` (what builds them, and pyspark) or an extra of pyproject.toml. `make setup`,
`make dist` and the Dockerfile take the lines of some groups. Who needs a distribution is read from the metadata of this environment,
which has to have every extra (`make setup EXTRAS=bench,browser,contract,deploy,docs`); if it lacks one, that group stays as it was.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.tree import ROOT

FILE = ROOT / "requirements.txt"
BACKENDS = ("editables", "hatchling", "setuptools", "wheel")

HEADING = """\
# Exact versions of everything that is installed, each with the hashes of its archives: CONTRIBUTING.md, "Versions".
# Made by `python -m tests.tidy.requirements`; the words at the end of a line say who needs it.
"""

LINE = re.compile(
    r"(?P<pin>(?P<name>[A-Za-z0-9_.-]+)==[0-9][0-9a-z.]*)(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)  # (?P<groups>[a-z]+( [a-z]+)*)"
)

MACHINES = re.compile(r"(any|(manylinux|linux)\w*_(x86_64|aarch64)|macosx_\w+)(\.\w+)*")
"""Platform tags of the wheels whose hashes are kept, and of no others: there is no job on Windows."""

PYTHONS = re.compile(r"(.*\.)?(py3|py31[1-4]|cp3|cp31[1-4])(\..*)?|cp3([2-9]|1[0-4])-abi3")
"""Python tags of these wheels; one with a stable ABI is for each later version."""


class Pin(NamedTuple):
    """One line."""

    pin: str
    hashes: frozenset[str]
    groups: frozenset[str]


def pins() -> dict[str, Pin]:
    """Return the lines of requirements.txt by the normal name of their distribution."""
    found = {}
    for line in FILE.read_text("ascii").splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match is not None, line
            hashes = frozenset(match["hashes"].removeprefix(" --hash=sha256:").split(" --hash=sha256:"))
            found[canonicalize_name(match["name"])] = Pin(match["pin"], hashes, frozenset(match["groups"].split()))
    return found


def rendered(lines: Iterable[Pin]) -> str:
    """Return the text of requirements.txt."""
    return HEADING + "".join(
        f"{pin}{''.join(f' --hash=sha256:{each}' for each in sorted(hashes))}  # {' '.join(sorted(groups))}\n"
        for pin, hashes, groups in sorted(lines, key=lambda each: canonicalize_name(each.pin.partition("==")[0]))
    )


def own() -> tuple[str, ...]:
    """Return the names of the distributions of this tree."""
    return (
        "relay-validator",
        *(f"validator-{path.parent.name}" for path in sorted(ROOT.glob("plugins/*/pyproject.toml"))),
    )


def needed(wanted: Iterable[str]) -> set[str]:
    """Return the normal names of all distributions that some requirements need, except those of this tree.

    Raises `PackageNotFoundError` if one of them is not installed.
    """
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    left = [Requirement(each) for each in wanted]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found.add(name)
            below = map(Requirement, distribution(name).requires or ())
            left += [each for each in below if each.marker is None or each.marker.evaluate({"extra": extra})]
    return found - set(map(canonicalize_name, own()))


def groups() -> dict[str, set[str]]:
    """Return, by group, the normal names of the distributions that it needs, without groups that this environment lacks."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    found = {"build": needed(BACKENDS), "run": needed(own())}
    for extra, listed in extras.items():
        try:
            found[extra] = needed(listed) - found["run"]
        except PackageNotFoundError:
            continue
    return found


def regrouped(lines: dict[str, Pin]) -> list[Pin]:
    """Return the lines with the groups that this environment's metadata give. A distribution that nobody needs any more is left out."""
    now = groups()
    changed = [
        each._replace(groups=(each.groups - now.keys()) | {group for group, names in now.items() if name in names})
        for name, each in lines.items()
    ]
    return [each for each in changed if each.groups]


def archives(freeze: Path) -> dict[str, set[str]]:
    """Return, by pin, the hashes of the archives for `MACHINES`, as uv's lock lists them.

    If there is no wheel, that is the source archive.
    """
    uv = shutil.which("uv")
    if uv is None:
        raise typer.BadParameter("uv, which knows the hashes of all archives, is not installed: pip install uv")
    with tempfile.TemporaryDirectory() as folder:
        wanted, lock = Path(folder, "wanted.txt"), Path(folder, "pylock.toml")
        frozen = freeze.read_text("ascii").splitlines()
        wanted.write_text(
            "".join(f"{each}\n" for each in frozen if re.fullmatch(r"(?!pip=)[A-Za-z0-9_.-]+==\S+", each)), "ascii"
        )
        command = [
            uv,
            "pip",
            "compile",
            "--quiet",
            "--no-deps",
            "--universal",
            f"--python-version={platform.python_version()}",
        ]
        command += ["--format=pylock.toml", f"--output-file={lock}", str(wanted)]
        subprocess.run(command, check=True)
        packages = tomllib.loads(lock.read_text("utf-8"))["packages"]
    names = {canonicalize_name(each.partition("==")[0]): each.partition("==")[0] for each in frozen}
    return {
        f"{names[each['name']]}=={each['version']}": {
            wheel["hashes"]["sha256"] for wheel in each.get("wheels", ()) if _wanted(wheel["url"].rpartition("/")[2])
        }
        or {each["sdist"]["hashes"]["sha256"]}
        for each in packages
    }


def _wanted(wheel: str) -> bool:
    *_, python, abi, platform = wheel.removesuffix(".whl").split("-")
    stable = f"{python}-abi3" if abi == "abi3" else python
    return bool(PYTHONS.fullmatch(stable) and MACHINES.fullmatch(platform) and not abi.endswith("t"))


def main(
    freeze: Annotated[Path | None, typer.Option(help="The output of pip freeze --all, with other versions.")] = None,
) -> None:
    """Write requirements.txt."""
    if freeze is None:
        lines = pins()
    else:
        lines = {
            canonicalize_name(pin.partition("==")[0]): Pin(pin, frozenset(hashes), frozenset())
            for pin, hashes in archives(freeze).items()
        }
    FILE.write_text(rendered(regrouped(lines)), encoding="ascii")


if __name__ == "__main__":
    typer.run(main)
