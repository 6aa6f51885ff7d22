# SPDX-License-Identifier: Apache-2.0
"""Names that others use lead to those that are known here."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.tidy.tree import ROOT
from validator.codec.json_form import encode_input
from validator.core.inputs import RecordKind
from validator.errors import UserError
from validator.names import ITEMS, NAMES, STATE, closest
from validator.plugin.runtime import RuntimePlan, codec_of

LIMIT = ("hrmp_channel_max_places", "hrmp_channel_max_size", "max_upward_queue_size")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("hrmp_channel_max_capacity", LIMIT, "hrmp_channel_max_places"),
        ("hrmpChannelMaxTotalSize", LIMIT, "hrmp_channel_max_size"),
        ("maxUpwardQueueSize", LIMIT, "max_upward_queue_size"),
        ("max_capacity", ("origin", "max_places"), "max_places"),
        ("maxCapacity", ("limit_used_places", "used_places"), "limit_used_places"),
        ("hrmp_init_open_channel", ("init_open_channel", "accept_open_channel"), "init_open_channel"),
        ("block_num", ("lane", "block", "index"), "block"),
        ("nothing_alike", LIMIT, None),
    ],
)
def test_name_of_others_is_found(name: str, known: tuple[str, ...], meant: str | None) -> None:
    assert closest(name, known) == meant


def test_each_name_here_exists() -> None:
    schemas = "".join(path.read_text("utf-8") for path in (ROOT / "avro").glob("*.avsc"))
    names = set(re.findall(r'"name": "(?:validator\.router\.)?(\w+)"', schemas))
    calls = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names}
    state = "".join(
        (ROOT / f"validator/protocols/router/{name}.py").read_text("utf-8") for name in ("state", "statefile", "traces")
    )
    for each in NAMES:
        assert each.ours in (names | calls | {"kind"}) or (each.where in (STATE, ITEMS) and each.ours in state), (
            each.ours
        )


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"kind": "hrmp_init_open_channel", "max_places": 8},
            "kind: expected one of .*found 'hrmp_init_open_channel'; did you mean 'init_open_channel'\\?$",
        ),
        (
            {"kind": "init_open_channel", "proposedMaxCapacity": 8},
            r"proposedMaxCapacity: no such field; did you mean 'max_places'\?$",
        ),
    ],
)
def test_record_with_the_names_of_a_chain_is_refused_with_those_here(given: dict[str, Any], line: str) -> None:
    record = {
        "lane": "polkadot",
        "block": 1,
        "index": 0,
        "origin": 2000,
        "recipient": 2004,
        "max_message_size": 8,
        **given,
    }
    with pytest.raises(UserError, match=line):
        encode_input(codec_of([RuntimePlan("router")]), RecordKind.REQUEST, record, "router")
