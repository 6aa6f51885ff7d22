# SPDX-License-Identifier: Apache-2.0
"""A small chain, for tests of a single aspect."""

from __future__ import annotations

from typing import Any

from validator_xcmp_network.rules import XCMP_NETWORK
from validator_xcmp_network.state import read_configuration
from validator_xcmp_network.traces import read_candidate

from tests.rule_sets import Json, result_of
from validator.core.rules import LaneRules
from validator.plugin.protocol_api import ChainSettings, Node, Para


def chain_of(paras: tuple[int, ...], channels: list[tuple[int, int]], **config: Any) -> LaneRules:
    """Return the rule set of a chain with fixed channels."""
    setup = read_configuration(Node({"open_channels": [list(pair) for pair in channels], **config}, "config"))
    return XCMP_NETWORK.at_genesis(ChainSettings(setup, tuple(Para(para) for para in paras)))


def judged(rules: LaneRules, block: int, para: int, outbox: Any = (), acks: Any = (), **more: Any) -> Json:
    """Give a chain a candidate and return the result; ``outbox`` has recipients or ``(recipient, root, size)``."""
    messages = [item if isinstance(item, tuple) else (item, "00" * 32, 0) for item in outbox]
    item = {
        "para_id": para,
        "outbox": [{"recipient": recipient, "root": root, "size": size} for recipient, root, size in messages],
        "acks": [list(ack) for ack in acks],
        **more,
    }
    if rules.env.now != block:
        rules.begin_block(block)
    return result_of(rules.apply_candidate, read_candidate(Node(item, "candidate"), block))
