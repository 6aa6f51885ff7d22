# SPDX-License-Identifier: Apache-2.0
"""What the example in `examples/channel` shows, at a small terminal and in a file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "channel"
MODULES = ("screen", "traffic", "scene", "demo")
STATUS = "the gateway has ended with -9 and is started again"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the example's modules."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    for name in MODULES:
        sys.modules.pop(name, None)


def traffic(example: Any) -> Any:
    """Return peers with numbers as large as a run of an hour has them."""
    peers = []
    for name, paras in (("relay", None), ("team-2000", [2000]), ("team-2001", [2001]), ("team-2004", [2004])):
        wire = example.traffic.Wire(0, sent=12_345_678, received=23_456_789, last=bytes(range(24)))
        peer = example.traffic.Peer(example.scene.PeerFiles(name, paras), wire, sent=54_321, acknowledged=54_320)
        peer.resubmitted, peer.refused, peer.accepted, peer.rejected = 12, 3, 54_000, 300
        peer.latencies_ms.append(123.4)
        peer.seen.update((number, "candidate", 0) for number in range(54_300))
        peer.tape.extend(
            f"candidate 1032/{at} of 2000  message 0000000100000007  [red]refused[/] OutboundHrmp/CapacityExceeded"
            for at in range(20)
        )
        peers.append(peer)
    return SimpleNamespace(peers=peers, relay=peers[0], blocks_sent=1_032)


def drawn(example: Any, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=StringIO())
    console.print(example.screen.draw(traffic(example), STATUS, 754.0, height))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("height", [24, 40, 60])
def test_80_columns_show_everything_and_fit(example: Any, height: int) -> None:
    lines = drawn(example, 80, height)
    assert max(map(len, lines)) <= 80
    assert len(lines) < max(height, 24 + 4)
    table = lines[1:6]
    assert table[0].split() == " ".join(example.screen.COLUMNS).split()
    for line in table[1:]:
        assert "\u2026" not in line  # nothing is cut
        assert line.split()[-9:] == ["54321", "54320", "12", "3", "123", "12,345", "23,456", "54300", "300"]
    assert STATUS in lines[0]


def test_notes_explain_the_columns(example: Any) -> None:
    text = " ".join(" ".join(drawn(example, 80, 40)).split())
    for name, meaning in example.screen.COLUMNS.items():
        assert not meaning or f"{name}: {meaning}." in text


def test_line_has_the_whole_run(example: Any) -> None:
    assert example.screen.progress_line(traffic(example)) == (
        "1032 blocks: 217284 records sent, 217280 acknowledged, 48 of them resent; 54300 verdicts, 300 of them rejected"
    )


def test_redirected_output_is_lines_that_are_there_at_once(example: Any, tmp_path: Path) -> None:
    with (tmp_path / "output").open("w") as file:
        demo = example.demo.Demo.__new__(example.demo.Demo)
        demo._console, demo._began = Console(file=file), 0.0
        demo._say("the gateway is killed")
        assert (tmp_path / "output").read_text().endswith(" s  the gateway is killed\n")
