# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.dispatch_order`: how fair both dispatch orders of upward messages are, as a table and a figure.

Nothing here depends on the machine: it counts blocks and weight. One para floods its queue with heavy messages, some send a few of medium
weight, most send a light one now and then; for a while all of them together send more than a round can serve.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from validator.core.handlers.upward import FixedWeightDispatcher
from validator.core.rules import ChainSettings, RulesEpoch
from validator.core.types import Balances, Para, ParaId
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.features import table
from validator.protocols.router.profile import rules_of
from validator.protocols.router.records import Candidate
from validator.protocols.router.rules import ROUTER

BLOCKS = 400
BUSY_BLOCKS = range(50, 200)
"""Blocks in which everybody sends more than usual."""
BUDGET = 40
"""Weight of a round."""
ORDERS = {"router/seed": frozenset[str](), "message_queue": frozenset({"message_queue"})}


@dataclass(frozen=True)
class Kind:
    """Paras of one kind: how many, the weight of their messages, and how many they send in a block, usually and when busy."""

    name: str
    paras: int
    weight: int
    usual: float
    busy: float


KINDS = (Kind("light", 15, 1, 0.5, 1.0), Kind("medium", 4, 4, 0.5, 1.0), Kind("flooding", 1, 8, 1.0, 6.0))


@dataclass
class Followed:
    """What one order did: by block and para the age of the oldest waiting message, in blocks; by para the weight served in busy blocks."""

    ages: list[dict[ParaId, int]] = field(default_factory=list)
    served: Counter[ParaId] = field(default_factory=Counter)
    waited: dict[ParaId, list[int]] = field(default_factory=dict)
    """By para, the blocks that each message waited."""


def paras() -> dict[ParaId, Kind]:
    """Return all paras with their kind."""
    kinds = [kind for kind in KINDS for _ in range(kind.paras)]
    return {2000 + at: kind for at, kind in enumerate(kinds)}


def follow(features: frozenset[str], seed: int = 1) -> Followed:
    """Send the same messages under one order and record what it does with them."""
    everybody = paras()
    most = 2**20
    config = HostConfiguration(
        max_upward_message_num_per_candidate=most,
        max_upward_message_size=most,
        max_upward_queue_count=most,
        max_upward_queue_size=most,
        preferred_dispatchable_upward_messages_step_weight=BUDGET,
    )
    router = ROUTER.at_genesis(
        ChainSettings(
            config,
            tuple(map(Para, everybody)),
            Balances.UNLIMITED,
            upward_messages=FixedWeightDispatcher({bytes((kind.weight,)): kind.weight for kind in KINDS}),
            rules=(RulesEpoch(0, table.version_of(features), rules_of(features)),),
        )
    )
    draws = Random(seed)
    sent: dict[ParaId, deque[int]] = {para: deque() for para in everybody}
    found = Followed(waited={para: [] for para in everybody})
    for block in range(1, BLOCKS + 1):
        router.begin_block(block)
        for para, kind in everybody.items():
            rate = kind.busy if block in BUSY_BLOCKS else kind.usual
            count = int(rate) + (draws.random() < rate % 1)
            router.apply_candidate(Candidate(para, block - 1, block - 1, (bytes((kind.weight,)),) * count))
            sent[para].extend([block] * count)
        for dispatch in router.dispatch():
            found.waited[dispatch.para_id].append(block - sent[dispatch.para_id].popleft())
            if block in BUSY_BLOCKS:
                found.served[dispatch.para_id] += dispatch.weight
        found.ages.append({para: block - waiting[0] if waiting else 0 for para, waiting in sent.items()})
    return found


def fairness(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 if all shares are equal, 1 divided by their number if one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def main(out: Annotated[Path, typer.Option(help="Where the figure goes.")] = Path("docs/dispatch-order.png")) -> None:
    """Compare both orders, print a table and draw the figure."""
    found = {name: follow(features) for name, features in ORDERS.items()}
    everybody = paras()
    shown = Table(title="Upward messages under both dispatch orders", title_justify="left")
    for column in ("order", "paras", "share of the weight", "blocks waited (median)", "greatest age at the head"):
        shown.add_column(column, justify="left" if column in ("order", "paras") else "right")
    for name, order in found.items():
        for kind in KINDS:
            members = [para for para, each in everybody.items() if each is kind]
            share = sum(order.served[para] for para in members) / order.served.total()
            waits = [wait for para in members for wait in order.waited[para]]
            oldest = max(ages[para] for ages in order.ages for para in members)
            shown.add_row(name, f"{kind.paras} {kind.name}", f"{share:.0%}", f"{median(waits):.0f}", f"{oldest}")
        index = fairness([order.served[para] for para in everybody])
        shown.add_row(name, "all", f"Jain's index {index:.2f}", "", "", end_section=True)
    Console().print(shown)
    _draw(found, out)


def _draw(found: dict[str, Followed], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, rows = plt.subplots(len(KINDS), 1, figsize=(9, 8), sharex=True, layout="constrained")
    for kind, axes in zip(KINDS, rows, strict=True):
        members = [para for para, each in paras().items() if each is kind]
        for (name, order), style in zip(found.items(), ("-", "--"), strict=True):
            oldest = [max(ages[para] for para in members) for ages in order.ages]
            axes.plot(range(1, BLOCKS + 1), oldest, style, label=name)
        axes.axvspan(BUSY_BLOCKS.start, BUSY_BLOCKS.stop, alpha=0.1, label="busy blocks")
        axes.set_ylabel(f"{kind.name} ({kind.paras})\nage at the head [blocks]")
        axes.grid(alpha=0.3)
    rows[0].set_title("Age of the oldest waiting upward message under both dispatch orders")
    rows[0].legend(loc="upper right")
    rows[-1].set_xlabel("block")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    typer.run(main)
