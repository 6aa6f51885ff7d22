# SPDX-License-Identifier: Apache-2.0
"""The configuration of the transport: the table `[transports.relay-chain]`, with one table for each chain that is followed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from validator_relay_chain.limits import (
    COMPARE_EVERY_BLOCKS,
    IN_FLIGHT,
    IN_FLIGHT_MAX,
    NODES_MAX,
    SILENT_AFTER_S,
    SILENT_AFTER_S_MAX,
)
from validator_relay_chain.pool import check_url

LANE: Final = re.compile(r"[a-z0-9._-]{1,64}")
GENESIS: Final = re.compile(r"0x[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSource:
    """Where a lane's blocks come from. Paths are relative to the working directory."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    rpc: tuple[str, ...]
    """Addresses of nodes, ``ws://`` or ``wss://``; the first one is used, the others are spares."""
    genesis: str
    """Hash of block 0, with 0x: a node of another chain is not used."""
    folder: str
    """Folder with what the lane began with, and with metadata of runtimes."""
    to_block: int | None = None
    """The last block to follow; without it the lane follows forever."""
    compare_every_blocks: int = COMPARE_EVERY_BLOCKS
    """Blocks between two looks at the storage that the lane is compared with, besides those at session changes and at ``to_block``; 0 for
    none at all."""
    in_flight: int = IN_FLIGHT
    """Blocks that are fetched at once while the lane catches up. Public nodes refuse more than a few; your own node takes 64."""
    simulator: bool = False
    """Whether the nodes are simulators such as chopsticks, whose blocks have no state root: heads of downward queues are believed."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.rpc) <= NODES_MAX:
            raise ValueError(f"rpc: expected 1 to {NODES_MAX} addresses, found {len(self.rpc)}")
        for url in self.rpc:
            check_url(url)
        if not GENESIS.fullmatch(self.genesis):
            raise ValueError(f"genesis: expected 0x and 64 hex digits, found {self.genesis[:80]!r}")
        if self.to_block is not None and not 0 <= self.to_block < 2**32:
            raise ValueError(f"to_block: expected a block number, found {self.to_block}")
        if not 0 <= self.compare_every_blocks < 2**32:
            raise ValueError(f"compare_every_blocks: expected a number of blocks, found {self.compare_every_blocks}")

        if not 1 <= self.in_flight <= IN_FLIGHT_MAX:
            raise ValueError(f"in_flight: expected 1 to {IN_FLIGHT_MAX} blocks, found {self.in_flight}")

    @property
    def start_path(self) -> Path:
        """The file with the first records and the cursor after them."""
        return Path(self.folder) / "start.json"

    @property
    def metadata_folder(self) -> Path:
        """The folder of metadata."""
        return Path(self.folder) / "metadata"

    @property
    def blocks_folder(self) -> Path:
        """The folder of blocks that `validator fetch` has fetched (`archive`)."""
        return Path(self.folder) / "blocks"


@dataclass(frozen=True)
class Configuration:
    """The table `[transports.relay-chain]`: sources of blocks by lane."""

    chains: dict[str, ChainSource] = field(default_factory=dict)
    silent_after: int = SILENT_AFTER_S
    """Seconds without a new block after which a lane is unhealthy, unless it has a last block."""

    def __post_init__(self) -> None:
        if not 1 <= self.silent_after <= SILENT_AFTER_S_MAX:
            raise ValueError(f"silent_after: expected 1 to {SILENT_AFTER_S_MAX} seconds, found {self.silent_after}")
        for lane in self.chains:
            if not LANE.fullmatch(lane):
                raise ValueError(f"chains: expected names of 1 to 64 of a-z 0-9 . _ -, found {lane[:80]!r}")
