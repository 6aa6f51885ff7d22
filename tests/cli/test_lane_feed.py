# SPDX-License-Identifier: Apache-2.0
"""`validator lanes` shows whether new blocks reach a lane that a transport feeds."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.follower import follower, invoke, lines
from tests.codecs import encoded
from tests.sending import send

SOURCE = f'rpc = ["ws://127.0.0.1:1"]\ngenesis = "0x{"00" * 32}"\nfolder = "polkadot"'


@pytest.mark.broker
def test_lane_that_a_transport_feeds_shows_the_age_of_its_newest_block(
    tmp_path: Path, kafka: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = follower(tmp_path, kafka, f"feed-{tmp_path.name}.", blocks=4)
    plain = chain.config_path.read_text(encoding="utf-8")

    def feed(last: str = "") -> dict[str, Any] | None:
        table = (
            f"[transports.relay-chain]\nsilent_after = 7200\n[transports.relay-chain.chains.polkadot]\n{SOURCE}\n{last}"
        )
        chain.config_path.write_text(f"{plain}\n{table}\n", encoding="utf-8")
        (row,) = lines(invoke("lanes", "--json", chain.option()).stdout)
        found: dict[str, Any] | None = row["feed"]
        return found

    def printed() -> str:
        return invoke("lanes", chain.option()).stdout

    nothing = {"transport": "relay-chain", "silent_after_s": 7200, "newest_block": None, "age_s": None, "silent": True}
    assert feed() == nothing
    assert "SILENT: no block among the last records, expected one within 2 h: transport relay-chain waits" in printed()
    blocks = [(kind, b"polkadot", encoded(kind, record)) for kind, record in chain.records if kind == "blocks"]
    send(chain.config.kafka, chain.config.topics.prefix, blocks)
    found = feed()
    assert found is not None
    assert (found["newest_block"], found["silent"]) == (len(blocks), False)
    assert 0 <= found["age_s"] < 7200
    assert f"newest block {len(blocks)} arrived " in printed()
    monkeypatch.setattr("validator.cli.lanes.time", SimpleNamespace(time=lambda: time.time() + 8_000))
    why = "transport relay-chain waits, has ended, or was never started"
    assert f"SILENT: no new block for 2 h, expected one within 2 h: {why}" in printed()
    assert feed("to_block = 9") is None, "a lane that ends may be silent"
