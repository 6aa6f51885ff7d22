# SPDX-License-Identifier: Apache-2.0
"""Prepares a lane that joins a chain: reads its state after one block, and writes what job and transport begin with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from validator_relay_chain.errors import BadAnswer, FollowError, SeedError, Simulated, StatePruned, UndecodableBlock
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.oracle.gather import facts_of_seed
from validator_relay_chain.oracle.records import FACTS
from validator_relay_chain.rules import PRESET, entries_of, features_of, guess_of, write_rules
from validator_relay_chain.seeding import Progress, Seed, Snapshot, make_seed, seed_document, take_snapshot
from validator_relay_chain.source import Chain, Version

PARENTS: Final = 8
"""Blocks before the first one whose hashes are kept: candidates build on them."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A lane that can begin."""

    lane: str
    genesis: bytes
    header: Header
    seed: Seed
    rules: list[dict[str, Any]]
    """The lane's rules by height, as the configuration lists them."""


def prepare(
    chain: Chain,
    lane: str,
    folder: Path,
    *,
    from_block: int | None = None,
    to_block: int | None = None,
    progress: Progress = lambda *_: None,
    tell: Tell = lambda _: None,
    simulator: bool = False,
) -> Prepared:
    """Read the state after the block before ``from_block``, by default after the last finalised one, and write the files of the lane.

    The folder gets ``STATE.json``, ``start.json``, ``rules.json``, ``seed.jsonl.gz`` with the raw answers, and metadata. Raises
    `FollowError`: a block that is not finalised, one of a simulator unless ``simulator`` says so, state that is pruned, not proven or
    contradicts itself, a folder that cannot be written.
    """
    head = chain.header(chain.finalised_head())
    header = _first(chain, head, from_block, to_block)
    for each in (head, header):
        if each.is_simulated and not simulator:
            raise Simulated(each.number)
    genesis = chain.pool.genesis or chain.hash_at(0)
    snapshot, seed = _seed(chain, lane, header, genesis, progress)
    if not snapshot.is_proven:
        tell(f"block {header.number}: the node gives no proofs of storage, so the state is what it says")
    for notice in seed.notices:
        tell(notice)
    start = seed_document(seed)
    paras = seed.position.lifecycles
    facts = facts_of_seed(lane, header, len(seed.records) - 1, paras, chain, seed.unread)
    start["records"].append([FACTS, facts.to_json()])
    last = head.number if to_block is None else min(head.number, to_block)
    rules = rules_by_height(chain, lane, header, last, tell)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "STATE.json", seed.state, indent=1)
        _write(folder / "start.json", start)
    except OSError as error:
        raise FollowError(f"{folder}: cannot be written: {error.strerror}") from error
    write_rules(folder, entries_of(rules))
    snapshot.write(folder / "seed.jsonl.gz")
    return Prepared(lane, genesis, header, seed, rules)


def _first(chain: Chain, head: Header, from_block: int | None, to_block: int | None) -> Header:
    number = head.number if from_block is None else from_block - 1
    if to_block is not None and to_block <= number:
        raise FollowError(f"--to-block: expected a block after {number}, found {to_block}")
    if number > head.number:
        raise FollowError(
            f"--from-block: expected at most {head.number + 1}, the block after the last finalised one, found {from_block}"
        )
    return head if number == head.number else chain.header(chain.hash_at(number))


def _seed(chain: Chain, lane: str, header: Header, genesis: bytes, progress: Progress) -> tuple[Snapshot, Seed]:
    """Return the state after a block and what a lane begins with. What one node says and cannot be right is asked of the others."""
    parents = _parents(chain, header)
    for left in reversed(range(chain.pool.size)):
        is_first = left == chain.pool.size - 1
        try:
            runtime = chain.runtime(header.hash, afresh=not is_first)
            snapshot = take_snapshot(chain, header, runtime, progress)
            return snapshot, make_seed(lane, snapshot, runtime, genesis, parents)
        except (BadAnswer, SeedError, UndecodableBlock) as error:
            if not left:
                raise
            chain.pool.blame(BadAnswer(str(error)))
    raise AssertionError("a pool has a node")


def _parents(chain: Chain, header: Header) -> list[bytes]:
    """Return the hashes of the blocks before one, oldest first, as far as the node knows them."""
    found: list[bytes] = []
    each = header
    while len(found) < PARENTS and each.number > 1:
        found.append(each.parent_hash)
        if len(found) < PARENTS:
            parent = chain.header_if_known(each.parent_hash)
            if parent is None:
                break
            each = parent
    return found[::-1]


def rules_by_height(chain: Chain, lane: str, first: Header, last: int, tell: Tell) -> list[dict[str, Any]]:
    """Return the rules of the blocks after ``first``: an entry for each runtime up to the block ``last`` whose rules differ.

    The runtime in the state after a block executes the next one. A line says if the chain's versions are not known.
    """
    entries: list[dict[str, Any]] = []
    guess: str | None = None

    def add(block_hash: bytes, from_block: int) -> Version:
        nonlocal guess
        version = chain.version(block_hash)
        runtime = chain.runtime(block_hash, version=version)
        features = features_of(runtime)
        guess = guess_of(runtime)
        if not entries or entries[-1]["features"] != features:
            entries.append({"from_block": from_block, "features": features})
        return version

    version, number = add(first.hash, 0), first.number
    try:
        end = chain.version(chain.hash_at(last)) if last > number else version
        while version != end:
            number = _change_after(chain, number, last, version)
            version = add(chain.hash_at(number), number + 1)
    except StatePruned as error:
        tell(f"{error}; runtimes after block {number} are not looked at")
    if guess is not None:
        features = json.dumps(entries[-1]["features"])
        tell(f"{guess}; if the judge disagrees, change this line in [[chains.{lane}.rules]]: features = {features}")
    return entries


def _change_after(chain: Chain, low: int, high: int, version: Version) -> int:
    """Return the first block after ``low`` whose state has another runtime than ``version``, which that of ``high`` is."""
    while high - low > 1:
        middle = (low + high) // 2
        if chain.version(chain.hash_at(middle)) == version:
            low = middle
        else:
            high = middle
    return high


def configuration(
    prepared: Prepared, rpc: Sequence[str], folder: str, to_block: int | None, *, simulator: bool = False
) -> dict[str, Any]:
    """Return the tables of a `validator.toml` for the lane. ``folder`` is the one of its files, as the configuration names it."""
    source: dict[str, Any] = {"rpc": list(rpc), "genesis": to_hex(prepared.genesis), "folder": folder}
    if to_block is not None:
        source["to_block"] = to_block
    if simulator:
        source["simulator"] = True
    chain: dict[str, Any] = {
        "enactment": "on-inclusion",
        "balances": "unlimited",
        "state": f"{folder}/STATE.json",
        "host_configuration": {"preset": PRESET, **prepared.seed.configuration},
        "rules": prepared.rules,
    }
    return {"chains": {prepared.lane: chain}, "transports": {"relay-chain": {"chains": {prepared.lane: source}}}}


def describe(prepared: Prepared) -> str:
    """Return what was read, in a line."""
    state: Mapping[str, Any] = prepared.seed.state["state"]
    counts = ((len(state.get(name, ())), what) for name, what in (("valid_paras", "paras"), ("channels", "channels")))
    parts = [f"{count} {what}" for count, what in counts]
    pending = len(prepared.seed.records) - 1
    return f"lane {prepared.lane}: the state after block {prepared.header.number}: {', '.join(parts)}, {pending} pending candidates"


def _write(path: Path, document: Any, indent: int | None = None) -> None:
    path.write_text(json.dumps(document, indent=indent) + "\n", encoding="utf-8")
