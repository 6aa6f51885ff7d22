# SPDX-License-Identifier: Apache-2.0
"""The bill of materials lists what is installed, and the audit says whether it was run."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import distributions

import pytest
import typer

from tests.tidy import audit
from tests.tidy.audit import NotRun, first_answer, vulnerabilities
from tests.tidy.sbom import ROOT, archive_hashes, bill, normal


def pins() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text("ascii").splitlines()
    return {
        f"{normal(line.partition('==')[0])}=={line.partition('==')[2]}"
        for line in lines
        if line and not line.startswith("#")
    }


def test_every_pin_has_a_hash() -> None:
    hashes = archive_hashes()
    assert set(hashes) == pins()
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in hashes.values())


def test_the_bill_lists_distributions_and_jars() -> None:
    document = bill(list(distributions()))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    components = {each["bom-ref"]: each for each in document["components"]}
    assert len(components) == len(document["components"])
    hashes = archive_hashes()
    for each in components.values():
        pin = f"{each['name']}=={each['version']}"
        if pin in hashes and "group" not in each:
            assert each["hashes"] == [{"alg": "SHA-256", "content": hashes[pin]}]
    jars = [each for each in components.values() if "group" in each]
    assert len(jars) > 40
    assert all(each["hashes"] for each in jars)
    assert json.dumps(document) == json.dumps(bill(list(distributions())))
    assert any(each["name"] == "fastavro" and each["hashes"] for each in components.values())


def reports(text: str, code: int = 0) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({text!r}); print('no route', file=sys.stderr); sys.exit({code})"]


def test_the_audit_reads_a_report() -> None:
    known = {
        "name": "a",
        "version": "1",
        "vulns": [{"id": "X-1", "fix_versions": ["2"]}, {"id": "X-2", "fix_versions": []}],
    }
    report = json.dumps({"dependencies": [known, {"name": "b", "version": "1", "vulns": []}]})
    assert vulnerabilities(reports(report, 1)) == ["a 1: X-1, fixed in 2", "a 1: X-2, fixed in no version"]


@pytest.mark.parametrize("text", ["", "{}", json.dumps({"dependencies": [{"name": "a", "skip_reason": "x"}]})])
def test_an_audit_without_a_report_was_not_run(text: str) -> None:
    with pytest.raises(NotRun):
        vulnerabilities(reports(text, 1))
    known = json.dumps({"dependencies": [{"name": "a", "version": "1", "vulns": []}]})
    assert first_answer([reports(text, 1), reports(known)]) == [], "another service has an answer"
    with pytest.raises(NotRun, match=r"pip-audit .*; pip-audit "):
        first_answer([reports(text, 1), reports(text, 1)])


@pytest.mark.parametrize(("strict", "code"), [(False, 0), (True, 3)])
def test_the_audit_says_that_it_was_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], strict: bool, code: int
) -> None:
    monkeypatch.setattr(audit, "find_spec", lambda _: None)
    with pytest.raises(typer.Exit) as ended:
        audit.main(strict)
    assert ended.value.exit_code == code
    assert capsys.readouterr().out == "audit: NOT RUN: pip-audit is not installed (pip install pip-audit)\n"
