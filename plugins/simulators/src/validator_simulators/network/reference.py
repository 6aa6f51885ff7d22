# SPDX-License-Identifier: Apache-2.0
"""The runs of the reference table, with its published figures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from validator_simulators.network.report import Report
from validator_simulators.network.settings import NetworkSettings

REFERENCE: Final = NetworkSettings(
    paras=51,
    traffic="one",
    messages_per_block=1,
    blocks=800,
    sizes="uniform",
    ingest_bytes=5_000_000,
    capacity_messages=8,
    request_after_blocks=0,
)
"""50 senders, one recipient that takes in 5 MB per block, 8 unread messages per channel, seed 1. Late bodies are not requested again."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: a name, the settings, and what the table says, by the column's name; an empty string where it says nothing."""

    name: str
    settings: NetworkSettings
    published: dict[str, str] = field(default_factory=dict)


COLUMNS: Final = ("mean", "p99", "oldest", "jain", "refused", "stalled")


def _case(name: str, settings: NetworkSettings, *published: str) -> Case:
    return Case(name, settings, dict(zip(COLUMNS, published, strict=True)))


OVERLOAD: Final = replace(REFERENCE, load=1.5)
LATE: Final = replace(REFERENCE, load=0.7, late_share=0.1)
LOST: Final = replace(REFERENCE, load=0.7, lost_share=0.1, request_after_blocks=1)
FLOODED: Final = replace(REFERENCE, paras=100, load=None, size_bytes_mean=1_000_000, sizes="fixed", capacity_messages=4)

CASES: Final = (
    _case("load 0.5", replace(REFERENCE, load=0.5), "1.0", "1", "0", "1.0", "0", "0"),
    _case("load 0.9", replace(REFERENCE, load=0.9), "1.0", "2-3", "0", "1.0", "0", "0"),
    _case("load 1.5, free", OVERLOAD, "11.9", "13", "12", "0.999", "0.338", "0"),
    _case("load 1.5, prefix", replace(OVERLOAD, policy="prefix"), "11.9", "13", "12", "0.999", "0.336", "0"),
    _case("load 1.5, rotating", replace(OVERLOAD, policy="rotating"), "11.1", "28", "27", "0.999", "0.326", "0"),
    _case("load 1.5, arrival", replace(OVERLOAD, policy="arrival"), "11.9", "13", "11", "0.999", "0.339", "0"),
    _case("load 1.5, favour 70 %", replace(OVERLOAD, policy="favour"), "7.9", "9", "799", "0.699", "0.337", "0"),
    _case("10 % late, free", LATE, "1.11", "3", "0", "1.0", "0", "28"),
    _case("10 % late, prefix", replace(LATE, policy="prefix"), "1.42", "3", "0", "1.0", "0", "34"),
    _case("10 % late, rotating", replace(LATE, policy="rotating"), "1.01", "1", "0", "1.0", "0", "0"),
    _case("10 % late, arrival", replace(LATE, policy="arrival"), "1.01", "1", "0", "1.0", "0", "0"),
    *(
        _case(f"load 1.5, K = {k}", replace(OVERLOAD, capacity_messages=k), mean, p99, "", "1.0", "0.33-0.35", "0")
        for k, mean, p99 in ((1, "1.5", "2"), (2, "3.0", "4"), (4, "6.0", "7"), (16, "23.4", "26"))
    ),
    *(
        _case(f"builds every {k} blocks", replace(REFERENCE, build_every_blocks=k), mean, p99, "", "1.0", "0", "")
        for k, mean, p99 in ((2, "1.5", "2"), (6, "3.5", "6"))
    ),
    _case("99 senders of 1 MB, K = 4", FLOODED, "71", "80", "79", "1.0", "0.94", "0"),
    Case("load 1.1, free", replace(REFERENCE, load=1.1)),
    Case("load 3, free", replace(REFERENCE, load=3.0)),
    Case("load 1.5, round-robin", replace(OVERLOAD, policy="round-robin")),
    Case("load 1.5, prefix, K = 1", replace(OVERLOAD, policy="prefix", capacity_messages=1)),
    Case("10 % late, free, requested", replace(LATE, request_after_blocks=1)),
    Case("10 % late, prefix, requested", replace(LATE, policy="prefix", request_after_blocks=1)),
    Case("10 % lost, free, requested", LOST),
    Case("10 % lost, prefix, requested", replace(LOST, policy="prefix")),
    Case("10 % lost, free, every block", replace(LOST, request_backoff=1)),
    Case("1 % lost, free, requested", replace(LOST, lost_share=0.01)),
    Case("1 % lost, free, every block", replace(LOST, lost_share=0.01, request_backoff=1)),
)
"""Every row of the table, then rows that it does not have. Under loads below 1 all policies agree, so that one stands for them."""


TOLERANCES: Final = {"mean": 0.05, "p99": 1.0, "oldest": 1.0, "jain": 0.002, "refused": 0.006, "stalled": 3.0}
"""How far a figure may be from the table: a share of it for the mean, else the difference."""


def figures(report: Report) -> dict[str, float]:
    """Return a run's figures by the table's columns."""
    total = report.total
    values = (
        total.lag_blocks.mean,
        total.lag_blocks.p99,
        total.oldest_unread_blocks,
        total.jain_bytes,
        total.refused_share,
        total.stalled_blocks,
    )
    return dict(zip(COLUMNS, values, strict=True))


def differing(case: Case, report: Report) -> list[str]:
    """Return the columns in which a run differs from the table by more than `TOLERANCES`."""
    found = []
    for column, value in figures(report).items():
        least, _, most = case.published.get(column, "").partition("-")
        if least:
            low, high = float(least), float(most or least)
            room = TOLERANCES[column] * (high if column == "mean" else 1)
            if not low - room <= value <= high + room:
                found.append(column)
    return found
