# SPDX-License-Identifier: Apache-2.0
"""The rules alone, on one core: candidates with one horizontal message each, on chains from small to very large."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from validator_simulators.router.load import SettingsLoad, load, load_chain, load_channels

from benchmarks.figures import Figure
from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input
from validator.core.execute import Intervals, execute
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.records import block_record
from validator.core.types import Balances, Block, ParaKind
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.protocols.kit import reserve
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.records import Candidate, candidate
from validator.protocols.router.rules import Router
from validator.protocols.router.state import HrmpChannel, RouterState, add_channel
from validator.topics import INPUT_TOPICS

SIZES = ((10, 90), (100, 1_000), (1_000, 50_000), (10_000, 1_000_000))
"""(paras, channels)."""

CANDIDATES = 60_000
CODEC = codec_of([RuntimePlan("router")])
INTERVALS = Intervals(headroom=0, root=0)


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure candidates/s at each size and the ratio of the largest to the smallest."""
    rates: dict[tuple[int, int], list[float]] = {}
    for paras, channels in SIZES:
        per_block = min(100, paras)
        settings = SettingsLoad(
            paras=paras,
            channels=channels,
            candidates_per_block=per_block,
            blocks=CANDIDATES // per_block,
            message_size_bytes=120,
        )
        say(f"core: {paras:,} paras, {channels:,} channels")
        blocks = prepare(settings)
        for _ in range(repeats):
            rules = Router(initial_state(settings))
            gc.collect()
            gc.freeze()
            gc.disable()
            began = time.process_time()
            for block in blocks:
                rejected = execute(rules, block, INTERVALS).receipt.rejected
                assert rejected == 0
            rates.setdefault((paras, channels), []).append(CANDIDATES / (time.process_time() - began))
            gc.enable()
            gc.unfreeze()
            del rules
    smallest, largest = SIZES[0], SIZES[-1]
    flatness = [large / small for large, small in zip(rates[largest], rates[smallest], strict=True)]
    figures = [
        Figure("core", f"{paras:,} paras, {channels:,} channels", "candidates/s", tuple(runs), at_least=25_000)
        for (paras, channels), runs in rates.items()
    ]
    note = "10,000 paras with 1,000,000 channels against 10 with 90; 1 means that the cost of a candidate does not grow"
    return [*figures, Figure("core", "flatness", "of the smallest's rate", tuple(flatness), at_least=0.5, note=note)]


def prepare(settings: SettingsLoad) -> list[Block]:
    """Return the load's blocks in the core's types, decoded by the codec, message hashes included."""
    blocks = []
    for simulated in load(settings):
        records = [decoded(kind, record) for kind, record in simulated.records]
        record = next(block_record(item.fields) for item in records if item.kind == RecordKind.BLOCK)
        candidates: list[Candidate] = [candidate(item.fields) for item in records if item.kind == RecordKind.CANDIDATE]
        blocks.append(Block(record, candidates=tuple(candidates)))
    return blocks


def decoded(topic: str, record: dict[str, object]) -> Input:
    """Return a record as an input, by way of its Avro bytes."""
    kind = INPUT_TOPICS[topic]
    result = decode_record(CODEC, kind, encode_input(CODEC, kind, record, "router"), Source(topic, 0, 0))
    assert not isinstance(result, DeadLetter), result
    return result[1]


def initial_state(settings: SettingsLoad) -> RouterState:
    """Return the load's state before its first block, built directly: reading a million channels from JSON would take too long."""
    config = HostConfiguration(**load_chain(settings)["config"])
    state = RouterState(config, Balances.UNLIMITED)
    for sender, recipients in enumerate(load_channels(settings), start=2000):
        state.paras[sender] = ParaKind.PARACHAIN
        for recipient in recipients:
            reserve(state, sender, config.hrmp_sender_deposit)
            reserve(state, recipient, config.hrmp_recipient_deposit)
            channel = HrmpChannel(
                sender_deposit=config.hrmp_sender_deposit,
                recipient_deposit=config.hrmp_recipient_deposit,
                limit_used_places=config.hrmp_channel_max_places,
                limit_used_bytes=config.hrmp_channel_max_size,
                limit_message_size=config.hrmp_channel_max_message_size,
            )
            add_channel(state, (sender, recipient), channel)
    return state
