# SPDX-License-Identifier: Apache-2.0
"""What the job uses of Spark though it is private exists in the installed version, and is used in one module."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyspark
import pytest

from streaming.spark_internals import INTERNALS, PYSPARK, Internal

STREAMING = Path(__file__).parents[3] / "streaming"

PRIVATE = re.compile(
    r"\._(?:jsc|gateway|jvm|jrdd|jdf|jsparkSession|jquery|accumulatorServer|instantiatedSession|activeSession|active_spark_context|"
    r"ensure_initialized|stackTrace)\b"
)


def test_version_is_the_one_that_this_was_tested_with() -> None:
    assert version("pyspark") == PYSPARK, (
        f"pyspark {version('pyspark')} is installed, and streaming/spark_internals.py was tested with {PYSPARK}: look up each of "
        "INTERNALS and each text in the new version, run tests/streaming and tests/crash, then change PYSPARK"
    )


@pytest.mark.parametrize("internal", [each for each in INTERNALS if ":" in each.name], ids=lambda each: each.name)
def test_python_has_it(internal: Internal) -> None:
    module, _, path = internal.name.partition(":")
    found: Any = import_module(module)
    for name in path.split("."):
        known = name in getattr(found, "__annotations__", {}) or f"self.{name}" in _source(found)
        assert hasattr(found, name) or known, f"pyspark {version('pyspark')} lacks {internal.name}: {internal.breaks}"
        found = getattr(found, name, None)


def _source(found: Any) -> str:
    module = import_module(getattr(found, "__module__", None) or found.__name__)
    return Path(str(module.__file__)).read_text(encoding="utf-8")


def test_java_has_it() -> None:
    classes: set[str] = set()
    for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar"):
        with ZipFile(jar) as archive:
            classes.update(archive.namelist())
    for internal in INTERNALS:
        if ":" not in internal.name:
            assert internal.name.replace(".", "/") + ".class" in classes, (
                f"Spark lacks {internal.name}: {internal.breaks}"
            )


def test_nothing_private_is_used_elsewhere() -> None:
    found = {
        path.name: sorted(set(PRIVATE.findall(path.read_text(encoding="utf-8")))) for path in STREAMING.glob("*.py")
    }
    assert [name for name, uses in found.items() if uses] == ["spark_internals.py"]
    listed = {each.name.rpartition(".")[2] for each in INTERNALS}
    assert {use.lstrip(".") for use in found["spark_internals.py"]} - listed == set()


def test_page_has_the_table() -> None:
    text = (STREAMING.parent / "docs/decisions/spark-internals.md").read_text(encoding="utf-8")
    for internal in INTERNALS:
        assert f"| `{internal.name}` | {internal.breaks} |" in text
