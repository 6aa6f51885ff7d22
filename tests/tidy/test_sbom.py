# SPDX-License-Identifier: Apache-2.0
"""requirements.txt pins what is installed, and the bill of materials lists it."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import distributions

import pytest

from tests.tidy.requirements import FILE, HEADING, LINE, groups, own, pins, regrouped, rendered
from tests.tidy.sbom import bill
from validator import __version__


def test_requirements_are_written_as_the_tool_writes_them() -> None:
    text = FILE.read_text("ascii")
    assert all(LINE.fullmatch(line) for line in text.removeprefix(HEADING).splitlines())
    assert rendered(pins().values()) == text


def test_each_requirement_names_who_needs_it() -> None:
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        pytest.skip("what is needed is read from this environment: the file is made on Linux with CPython 3.11")
    assert groups().keys() >= {"build", "run", "spark", "dev", "console", "registry", "plots"}, "make setup"
    assert rendered(regrouped(pins())) == FILE.read_text("ascii"), "run python -m tests.tidy.requirements"


def test_every_distribution_has_the_version_of_the_program() -> None:
    versions = {each.metadata["Name"]: each.version for each in distributions()}
    assert {versions[name] for name in own()} == {__version__}


def test_the_bill_is_complete() -> None:
    document = bill(list(distributions()))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    components = {each["bom-ref"]: each for each in document["components"]}
    assert len(components) == len(document["components"])
    for each in components.values():
        assert re.fullmatch(r"[A-Za-z0-9.+() -]+", each["licenses"][0]["expression"]), each
        assert each["licenses"] != [{"expression": "NOASSERTION"}], each["name"]
        pin = pins().get(each["name"])
        if pin is not None and pin.pin.endswith(f"=={each['version']}"):
            assert {one["content"] for one in each["hashes"]} == pin.hashes
    jars = [each for each in components.values() if "group" in each]
    assert len(jars) > 40
    assert all(each["hashes"] for each in jars)
    assert json.dumps(document) == json.dumps(bill(list(distributions())))
    assert any(each["name"] == "fastavro" and each["hashes"] for each in components.values())
