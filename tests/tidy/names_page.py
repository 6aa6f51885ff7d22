# SPDX-License-Identifier: Apache-2.0
"""Writes docs/names.md from the table of `validator.names`."""

from __future__ import annotations

from pathlib import Path

from tests.tidy.tree import ROOT
from validator.names import NAMES

PAGE = ROOT / "docs" / "names.md"

HEAD = """\
# Names elsewhere, and here

The names of records, limits and state files come from the [specifications](rules/README.md). Polkadot's runtime has renamed some since,
and explorers such as subscan have their own. The table has the names of the runtime's `HostConfiguration`, of the calls and storage of
its pallets `Hrmp`, `Dmp`, `Ump` and `MessageQueue`, and of subscan's answers. polkadot-js writes the runtime's names in camelCase:
`hrmpChannelMaxCapacity` is `hrmp_channel_max_capacity`.

A name that is not listed is the same here, with underscores. If a record or `validator.toml` has a name from the table, the error asks
"did you mean 'hrmp_channel_max_places'?". Numbers are plain integers; bytes are hex, with or without `0x`. `validator follow` renames by
itself ([follow-a-chain.md](follow-a-chain.md)).

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
