# SPDX-License-Identifier: Apache-2.0
"""The Router under its first and its newest rules: candidates/s on the same blocks, in turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from validator_simulators.router.load import SettingsLoad

from benchmarks.core import INTERVALS, initial_state, prepare
from benchmarks.figures import Figure
from validator.core.execute import execute
from validator.core.rules import ChainSettings, RulesEpoch
from validator.core.types import Block
from validator.protocols.router.features import table
from validator.protocols.router.profile import rules_of
from validator.protocols.router.rules import Router

SEED, NEWEST = table.SEED, list(table.PROFILES)[-1]
CANDIDATES = 40_000
LOAD = SettingsLoad(
    paras=100, channels=1_000, candidates_per_block=100, blocks=CANDIDATES // 100, message_size_bytes=120
)
UPWARD = bytes(64)


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure both profiles in turns, with horizontal messages alone and with an upward message in each candidate."""
    plain = prepare(LOAD)
    loads = {"horizontal": plain, "horizontal and upward": [_with_upward(block) for block in plain]}
    figures: list[Figure] = []
    for name, blocks in loads.items():
        say(f"profiles: {name}")
        rates: dict[str, list[float]] = {SEED: [], NEWEST: []}
        for turn in range(repeats):
            for profile in (SEED, NEWEST) if turn % 2 == 0 else (NEWEST, SEED):
                rates[profile].append(_rate(blocks, profile))
        figures += [
            Figure("profiles", f"{name}, {profile}", "candidates/s", tuple(runs)) for profile, runs in rates.items()
        ]
        ratio = tuple(newest / seed for newest, seed in zip(rates[NEWEST], rates[SEED], strict=True))
        figures.append(Figure("profiles", f"{name}, {NEWEST} against {SEED}", "times", ratio, at_least=0.8))
    return figures


def _rate(blocks: Sequence[Block], profile: str) -> float:
    """Return candidates per second of processor time."""
    features = table.PROFILES[profile]
    rules = (RulesEpoch(0, table.version_of(features), rules_of(features)),)
    router = Router(initial_state(LOAD), ChainSettings(rules=rules))
    gc.collect()
    gc.freeze()
    gc.disable()
    began = time.process_time()
    for block in blocks:
        receipt = execute(router, block, INTERVALS).receipt
        assert receipt.rejected == 0
    took = time.process_time() - began
    gc.enable()
    gc.unfreeze()
    return CANDIDATES / took


def _with_upward(block: Block) -> Block:
    candidates = tuple(candidate._replace(upward_messages=(UPWARD,)) for candidate in block.candidates)
    return replace(block, candidates=candidates)
