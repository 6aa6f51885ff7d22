# SPDX-License-Identifier: Apache-2.0
"""The pages about Channel say what the program does: modes of files, versions, limits."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path

from typer.testing import CliRunner
from validator_channel.application import MAIN_TOKENS_MAX, WATCH_TOPICS
from validator_channel.command import app
from validator_channel.gateway.entry import KEYS
from validator_channel.limits import (
    CODE_CHARACTERS_MAX,
    DETAIL_CHARACTERS_MAX,
    JSON_LEVELS_MAX,
    REASON_CHARACTERS_MAX,
    Settings,
)
from validator_channel.net import limits

from tests.docs.pages import DOCS

THREATS = (DOCS / "channel-threats.md").read_text(encoding="utf-8")
PEERS = (DOCS / "channel-peers.md").read_text(encoding="utf-8")
OPERATIONS = (DOCS / "channel-operations.md").read_text(encoding="utf-8")


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """Return the rows of the table under a heading by the text of their first cell."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]
    return {cells[0]: cells[1:] for cells in lines}


def test_files_have_the_modes_of_the_page(tmp_path: Path) -> None:
    def keys(*arguments: str) -> None:
        result = CliRunner().invoke(app, ["keys", *arguments])
        assert result.exit_code == 0, result.output

    ca = str(tmp_path / "ca")
    keys("new-ca", ca)
    for name in ("gateway", "acala"):
        keys("issue", name, "--ca", ca, "--peer", "0123456789abcdef0011223344556677", "--out", str(tmp_path))
    found = rows(THREATS, "Keys: where they are, and who may read them")
    for cell, (_, mode, secret) in found.items():
        paths = [path for name in re.findall(r"`([^`]+)`", cell) for path in tmp_path.glob(name.rstrip("/"))]
        if cell not in ("`psk_file`", "`peers.toml`"):  # other programs write these two
            assert paths, cell
        for path in paths:
            assert f"{stat.S_IMODE(path.stat().st_mode):04o}" == mode, path
            assert (path.stat().st_mode & 0o077 == 0) == (secret == "yes"), path


def test_versions_are_those_of_the_package() -> None:
    package = tomllib.loads((DOCS.parent / "plugins" / "channel" / "pyproject.toml").read_text())["project"]
    found = rows(THREATS, "Libraries that matter")
    python = package["requires-python"].removeprefix(">=")
    assert found["Python"][0] == f"{python} or newer"
    (cryptography,) = (each for each in package["dependencies"] if each.startswith("cryptography"))
    low, high = re.findall(r"[0-9]+", cryptography)
    assert found["`cryptography`"][0] == f"{low} or newer, below {high}"


def test_limits_of_the_log_are_those_of_the_program() -> None:
    text = " ".join(OPERATIONS.split())
    every_s = round(1 / limits.REFUSALS_OF_ADDRESS_PER_S)
    assert f"Up to {limits.REFUSALS_OF_ADDRESS_BURST} lines at once and one every {every_s} s of an address" in text
    assert (limits.REFUSALS_BURST, limits.REFUSALS_PER_S) == (20, 2.0)
    assert "and 20 at once and two a second of all together" in text
    assert limits.REFUSALS_FLUSH_S == 60.0
    assert "at the latest after a minute" in text


def test_table_of_the_registry_has_every_key_and_topic() -> None:
    found = rows(OPERATIONS, "The registry")
    named = {name for cell in found for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(KEYS)
    assert set(WATCH_TOPICS) == set(re.findall(r"`([a-z-]+)`", found["`watch`"][0]))


def test_choices_for_those_who_write_a_peer_have_the_numbers_of_the_program() -> None:
    section = PEERS.partition("\n## If you write a peer yourself\n")[2]
    settings, connection = Settings(), limits.ConnectionLimits()
    for text in (
        f"more than {JSON_LEVELS_MAX} levels",
        f"longer one than {REASON_CHARACTERS_MAX} characters is cut",
        f"longer one than {DETAIL_CHARACTERS_MAX} characters is cut; a code is cut after {CODE_CHARACTERS_MAX}",
        f"`max_topics` ({settings.max_topics})",
        f"`outbox_limit` ({settings.outbox_limit:,})",
        f"{settings.held_bytes >> 20} MiB of a session",
        f"not consumed to {settings.inbox_bytes >> 20} MiB",
        f"cuts it after {connection.shutdown_timeout:.0f} s",
        f"at most {MAIN_TOKENS_MAX:,} strings",
    ):
        assert text in section
