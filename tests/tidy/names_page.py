# SPDX-License-Identifier: Apache-2.0
"""Writes docs/names.md from the table of `validator.names`."""

from __future__ import annotations

from pathlib import Path

from tests.tidy.tree import ROOT
from validator.names import NAMES

PAGE = ROOT / "docs" / "names.md"

HEAD = """\
# Names elsewhere, and here

The names of records, limits and state files come from the [specifications](rules/README.md). Polkadot's source has renamed some since;
libraries write them in their own way, and so do block explorers. This page is made from the table that errors use, too:
`hrmpChannelMaxCapacity` in a record or in `validator.toml` is refused with "did you mean 'hrmp_channel_max_places'?".

A name that is not listed is the same here, with underscores: `maxUpwardQueueSize` of polkadot-js is `max_upward_queue_size`. Numbers are
plain integers, and bytes are hex, with or without `0x`. `validator follow` renames by itself ([follow-a-chain.md](follow-a-chain.md)).

| here | elsewhere | stands in | note |
|---|---|---|---|
"""


def made() -> dict[Path, str]:
    """Return the page."""
    rows = (
        f"| `{each.ours}` | {', '.join(f'`{name}`' for name in each.theirs)} | {each.where} | {each.note} |\n"
        for each in NAMES
    )
    return {PAGE: HEAD + "".join(rows)}
