# SPDX-License-Identifier: Apache-2.0
"""`validator prove` and `validator verify` read and write JSON; a false proof exits with 1, an invalid document with 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from validator.cli import proofs
from validator.cli.main import app
from validator.plugin.runtime import installed_protocol
from validator.replay.scenario import suite_names

HASH = "ab" * 32
HEADS = {"heads": {"2000": HASH, "2001": "cd" * 32, "7": "00" * 32}, "recipient": 2001}


def run(command: str, kind: str, document: Any, protocol: str = "xcmp") -> Result:
    """Run a command on a document, or on the bytes of one, from standard input."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return CliRunner().invoke(app, [command, kind, "--protocol", protocol], input=data)


def proved() -> dict[str, Any]:
    result = run("prove", "head", HEADS)
    assert (result.exit_code, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_help_lists_the_kinds_and_the_protocols_that_have_proofs() -> None:
    with_proofs = {
        each.name: each.proofs.kinds
        for name in suite_names()
        if (each := installed_protocol(name)) is not None and each.proofs is not None
    }
    for command in ("prove", "verify"):
        text = " ".join(CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).stdout.split())
        for protocol, kinds in with_proofs.items():
            assert protocol in text
            assert ", ".join(kinds) in text
        assert "Without proofs: early-hrmp, router." in text
    assert with_proofs.keys() == {"xcmp", "xcmp-network"}


def test_proof_verifies_its_claim_and_no_other() -> None:
    document = proved()
    assert list(document) == ["root", "recipient", "proof"]
    result = run("verify", "head", document)
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"ok": True, "head": "cd" * 32})
    for changed in ({**document, "recipient": 2000}, {**document, "root": HASH}, {**document, "proof": None}):
        result = run("verify", "head", changed)
        assert (result.exit_code, result.stderr) == (1, "")
        assert json.loads(result.stdout) == {"ok": False, "error": {"kind": "Head/ProofInvalid"}}


def test_document_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "heads.json"
    file.write_text(json.dumps(HEADS))
    for name in (str(file), "-"):
        result = CliRunner().invoke(app, ["prove", "head", name, "--protocol", "xcmp"], input=json.dumps(HEADS))
        assert json.loads(result.stdout) == proved()


@pytest.mark.parametrize("command", ["prove", "verify"])
@pytest.mark.parametrize(
    ("kind", "document", "protocol", "expected"),
    [
        ("head", b"", "xcmp", "standard input:1:1: not JSON: Expecting value"),
        ("head", b'{"proof": \xff}', "xcmp", "standard input: not UTF-8 at byte 10"),
        ("head", b"[" * 100_000, "xcmp", "standard input: nested more than 64 levels deep"),
        ("head", b"[" * 66 + b"]" * 66, "xcmp", "standard input: nested more than 64 levels deep"),
        ("head", b"9" * 5000, "xcmp", "standard input: expected numbers of at most 4300 digits"),
        ("head", [], "xcmp", "standard input: expected an object, found []"),
        ("tail", HEADS, "xcmp", "KIND: expected one of row, head, payload, processing, found 'tail'"),
        ("head", HEADS, "router", "--protocol: 'router' has no proofs"),
        ("head", HEADS, "none", "--protocol: 'none' is not installed; installed are "),
    ],
)
def test_invalid_document_is_one_error_line(
    command: str, kind: str, document: Any, protocol: str, expected: str
) -> None:
    result = run(command, kind, document, protocol)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"validator: {expected}")
    assert result.stderr.count("\n") == 1


def test_malformed_claim_is_one_error_line() -> None:
    document = proved()
    for changed, expected in (
        ({**document, "root": "00"}, 'root: expected 32 bytes in hex, found "00"'),
        ({**document, "recipient": -1}, "recipient: expected an integer from 0 to 4294967295, found -1"),
    ):
        result = run("verify", "head", changed)
        assert (result.exit_code, result.stderr) == (2, f"validator: standard input.{expected}\n")


def test_missing_or_too_large_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "heads.json"
    arguments = ["prove", "head", str(file), "--protocol", "xcmp"]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (2, f"validator: {file}: No such file or directory\n")
    file.write_text(json.dumps(HEADS))
    size = file.stat().st_size
    monkeypatch.setattr(proofs, "DOCUMENT_BYTES_MAX", size)
    assert CliRunner().invoke(app, arguments).exit_code == 0
    monkeypatch.setattr(proofs, "DOCUMENT_BYTES_MAX", size - 1)
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (
        2,
        f"validator: {file}: expected at most {size - 1} bytes, found more\n",
    )


def test_prefix_of_hex_is_refused_by_name() -> None:
    result = run("prove", "head", {**HEADS, "heads": {"2000": "0x" + HASH}})
    assert result.exit_code == 2
    assert "expected 32 bytes in hex without the prefix 0x, found" in result.stderr
