# SPDX-License-Identifier: Apache-2.0
"""Files in a format of a protocol that is not installed."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from validator.cli.main import app


def test_file_of_other_format_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "vectors.json"
    file.write_text('{"format": "no-such-protocol-vectors/1", "msg_hash": []}', encoding="utf-8")
    result = CliRunner().invoke(app, ["replay", str(file)])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"SKIP no-such-protocol-vectors/1 {file}: its protocol is not installed",
        "0 passed, 0 failed, 1 skipped",
    ]
