# SPDX-License-Identifier: Apache-2.0
"""What `make dist` builds runs in an environment that has nothing else. pip gets the other distributions from the package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.requirements import own
from tests.tidy.tree import ROOT
from validator import __version__

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path)  # a gigabyte


def test_wheels_run_the_demo_in_an_empty_environment(folder: Path) -> None:
    dist, environment, home = folder / "dist", folder / "environment", folder / "home"
    made = Path(sys.prefix, ".made")  # the environment that runs this test is the one that make would set up
    run("make", f"--old-file={made}", f"VENV={sys.prefix}", f"DIST={dist}", "dist", cwd=ROOT)
    names = {name.replace("-", "_") for name in own()}
    assert {each.name for each in dist.glob("*.whl")} == {f"{name}-{__version__}-py3-none-any.whl" for name in names}
    assert {each.name for each in dist.glob("*.tar.gz")} == {f"{name}-{__version__}.tar.gz" for name in names}

    run(sys.executable, "-m", "venv", str(environment), cwd=folder)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    for requirements in ("build.txt", "requirements.txt"):
        run(
            *pip,
            "--no-deps",
            "--no-build-isolation",
            "--require-hashes",
            "--requirement",
            str(dist / requirements),
            cwd=folder,
        )
    plugins = [name for name in own() if name != "relay-validator"]
    run(
        *pip,
        "--no-index",
        "--find-links",
        str(dist),
        "relay-validator[console,plots,registry,spark]",
        *plugins,
        cwd=folder,
    )
    run(*pip[:3], "check", cwd=folder)

    home.mkdir()
    if "VALIDATOR_HOME" not in os.environ and "XDG_CACHE_HOME" not in os.environ:
        (home / "cache").symlink_to(Path.home() / ".cache" / "validator")
    validator = str(environment / "bin" / "validator")
    assert run(validator, "--version", cwd=home) == f"{__version__}\n"
    shown = run(validator, "demo", "--json", "--blocks=10", cwd=home, VALIDATOR_HOME=str(home))
    assert '"ok": true' in shown


def run(*command: str, cwd: Path, **more: str) -> str:
    """Run a command to its successful end, and return what it printed."""
    without = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV", "VALIDATOR_HOME"}
    }
    done = subprocess.run(command, cwd=cwd, env=without | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
