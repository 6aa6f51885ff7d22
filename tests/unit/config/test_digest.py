# SPDX-License-Identifier: Apache-2.0
"""The digest of a chain's configuration: what it covers, and that recorded digests do not change."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.unit.config.test_config import load
from validator.config import Chain, configuration_digest
from validator.errors import UserError
from validator.protocols.router.configuration import CONFIGURATION_FIELDS, LIMITS_TABLE


def test_equivalent_configurations_have_equal_digests(tmp_path: Path) -> None:
    def digest(text: str) -> bytes:
        return configuration_digest(load(tmp_path, f"[chains.a]\n{text}").chains["a"])

    plain = digest("")
    assert len(plain) == 32
    spelled = "".join(
        f"host_configuration.{name} = {value}\n" for name, value in LIMITS_TABLE.presets["minimal"].items()
    )
    assert digest("host_configuration.preset = 'minimal'") == digest(spelled) != plain
    paras = ("{para_id = 1, balance = 5}", "{para_id = 2, kind = 'parachain'}")
    assert digest(f"genesis_paras = [{paras[0]}, {paras[1]}]") == digest(f"genesis_paras = [{paras[1]}, {paras[0]}]")
    assert digest("ump_failing_messages = ['0A', '0b', '0a']") == digest("ump_failing_messages = ['0b', '0a']")
    assert digest("ump_weights = { 0a = 1, 0b = 2 }") == digest("ump_weights = { 0B = 2, 0A = 1 }")
    assert digest("enactment = 'immediate'\nfirst_block = 1") == plain


@pytest.mark.parametrize(
    "text",
    [
        "enactment = 'on-inclusion'",
        "balances = 'unlimited'",
        "hrmp_notifications = true",
        "first_block = 2",
        "host_configuration.hrmp_open_request_ttl = 1",
        "genesis_paras = [{para_id = 1}]",
        "ump_default_weight = 2",
        "ump_weights.00 = 2",
        "ump_failing_messages = ['00']",
        "ump_message_weight_max = 2",
        "handlers = []",
    ],
)
def test_digest_changes_with_settings_that_affect_verdicts(tmp_path: Path, text: str) -> None:
    changed = load(tmp_path, f"[chains.a]\n{text}").chains["a"]
    assert configuration_digest(changed) != configuration_digest(Chain())


def test_digest_covers_bytes_of_state_file(tmp_path: Path) -> None:
    chain = load(tmp_path, "[chains.a]\nstate = 's.json'").chains["a"]
    with pytest.raises(UserError, match=r"s\.json: the chain's state cannot be read"):
        configuration_digest(chain)
    (tmp_path / "s.json").write_text("{}")
    digest = configuration_digest(chain)
    (tmp_path / "t.json").write_text("{}")
    assert configuration_digest(load(tmp_path, "[chains.a]\nstate = 't.json'").chains["a"]) == digest
    (tmp_path / "t.json").write_text("{} ")
    assert configuration_digest(load(tmp_path, "[chains.a]\nstate = 't.json'").chains["a"]) != digest


def test_digest_is_over_canonical_json() -> None:
    """Pinned, since two deployments compare their digests."""
    meaning = {
        "balances": "ledger",
        "dispatches_to_handlers": False,
        "enactment": "immediate",
        "first_block": 1,
        "genesis_paras": [],
        "host_configuration": dict.fromkeys(CONFIGURATION_FIELDS, 0),
        "hrmp_notifications": False,
        "limits": {},
        "protocol": "router",
        "state": None,
        "ump_default_weight": 1,
        "ump_failing_messages": [],
        "ump_message_weight_max": None,
        "ump_weights": {},
    }
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":")).encode()
    assert configuration_digest(Chain()) == blake2b(canonical, digest_size=32).digest()


RECORDED: dict[str, tuple[str, str]] = {
    "defaults": (
        "",
        "101c30f44961bdf8a8d0f0763dc6a3b7f03636bb8c203fc7389fbec3fd955308",
    ),
    "preset minimal": (
        "host_configuration.preset = 'minimal'",
        "729eb4acbc3bb02604044c91dc418147f9ae1b494672446f7355677cf3718201",
    ),
    "preset dev-2020-11": (
        "host_configuration.preset = 'dev-2020-11'",
        "75e19a99865002308f1ce77742b96adef0c3469f9e7f3a9c83e3878f36a6e90d",
    ),
    "preset polkadot-2021-09": (
        "host_configuration.preset = 'polkadot-2021-09'",
        "ce3a3978f9eea5fa4ff8eee68b6c858ab585fae135c79a8e0a0f230bd5c27eb9",
    ),
    "preset kusama-2022": (
        "host_configuration.preset = 'kusama-2022'",
        "5099217a3c365cff0fddc54f12845605deb79390b96b9bc044994de537b5610a",
    ),
    "preset polkadot-2023": (
        "host_configuration.preset = 'polkadot-2023'",
        "84104efe6d946e58216024fc5626116165267e50c597380e956d5ba21f84b5b6",
    ),
    "preset with values over it": (
        "host_configuration.preset = 'minimal'\nhost_configuration.hrmp_sender_deposit = 0\nhost_configuration.max_upward_queue_size = 7",
        "e83d2a596ae428102af2cf86f1d9311ea6dce4fff6f88974a2b5784ad8774cdc",
    ),
    "single values": (
        "host_configuration.hrmp_open_request_ttl = 3\nhost_configuration.hrmp_recipient_deposit = 340282366920938463463374607431768211455",
        "e805621f8b6772143668e1b770250319ec37c3ad0ced9363c0c6ce41519bc069",
    ),
    "modes": (
        "enactment = 'on-inclusion'\nbalances = 'unlimited'\nhrmp_notifications = true\nfirst_block = 77",
        "f810c6c2223f2074b28432dd7644cc0ebdae22418441ce89eb83b5a2f8ed9c17",
    ),
    "paras": (
        "genesis_paras = [{para_id = 9}, {para_id = 1, kind = 'parathread', balance = 5}]",
        "c91d21ba4ba768b9e8de82d591030e2ac6c7f45e6b02797298f49512c66b175b",
    ),
    "weights": (
        "ump_weights = { 0B = 2, 0a = 3 }\nump_default_weight = 4\nump_failing_messages = ['0C', '0c']",
        "ad7401a618e2242de1f15bbdd69950fc159b60b650678ba88a50b4edd67f0356",
    ),
    "handlers": (
        (
            "host_configuration.preset = 'polkadot-2023'\nump_message_weight_max = 5\n"
            "handlers = [{name = 'remark', from_block = 4, config = {bytes_max = 64}}]"
        ),
        "1c48adedaea66f003fc10f169828ba62727133262692cda6bfeb340a52b29dec",
    ),
    "no handlers": (
        "handlers = []",
        "c54a3920d15367cbe8a4a3b279c4d1e0db0c02e213dee66d65cf0704224d7800",
    ),
    "state": (
        "state = 'state.json'",
        "1c9e6ad09f70a80491a8b7dd698a6033bcd07b2e6b17011ca5fb7a60feaee1df",
    ),
    "early-hrmp": (
        "protocol = 'early-hrmp'",
        "7d1a95eb31216f15d3d842d7a8fbeaf1ed3a40c7bf4fd1dc77a87f6a8c04dc91",
    ),
    "early-hrmp with limits": (
        "protocol = 'early-hrmp'\nlimits.hrmp_channel_max_places = 1000\nlimits.hrmp_channel_max_size = 5",
        "cfefacba7786e8dbb78f28d1ba3481f5f84ad8fc45088536ac3208a394b44d47",
    ),
    "xcmp": (
        "protocol = 'xcmp'\nfirst_block = 3",
        "36a0bf3e989a8cd840a55d15c0d36afbba5aa11fb1f91758de471c1f7bcc11d8",
    ),
    "not installed": (
        "protocol = 'no-such-protocol'\nlimits = { b = 1, a = 'x' }",
        "9e16146e9b7d261140b13d58b7816b0df580159d7c19e308907bd3f872d66192",
    ),
}
"""Digests that must not change: every verdict carries one, so a resumed job must write the same digest as before."""


@pytest.mark.parametrize("name", RECORDED)
def test_digest_matches_recording(name: str, tmp_path: Path) -> None:
    text, digest = RECORDED[name]
    (tmp_path / "state.json").write_text('{"valid_paras": [2000]}')
    assert configuration_digest(load(tmp_path, f"[chains.a]\n{text}").chains["a"]).hex() == digest
