# SPDX-License-Identifier: Apache-2.0
"""A lane as it stands in the job's checkpoint, brought back into this process while the job runs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from validator import exit_codes
from validator.core.handlers.errors import HandlerFault
from validator.core.lane import LaneSettings
from validator.core.limits import U32_MAX, U64_MAX
from validator.core.scale import DecodeError
from validator.errors import UserError
from validator.lanes.definition import LaneDefinition
from validator.lanes.store import Head, restore_lane
from validator.lanes.stored import StateExport
from validator.service.checkpoint import last_committed_batch
from validator.service.plain_view import plain_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.core.handlers.state import HandlerStates
    from validator.core.rules import RuleSet
    from validator.core.types import ChannelId, ParaId
    from validator.lanes.processor import LaneProcessor
    from validator.plugin.protocol_api import ProtocolDefinition, StateView

T = TypeVar("T")

UNLIMITED = LaneSettings(blocks_ahead_max=U32_MAX, waiting_bytes_max=U64_MAX)
"""What was taken once fits, whatever the limits are by now."""


@dataclass(frozen=True, slots=True)
class RestoredState:
    """A lane after a batch: the head of its store, and the lane in memory, under the rules that it was stored under."""

    name: str
    batch: int
    consumed: Mapping[tuple[str, int], int]
    """What the batch and those before it have taken, by topic with the prefix and partition: the offset after the last record."""
    head: Head
    slots: int
    processor: LaneProcessor
    protocol: ProtocolDefinition
    plugins: tuple[str, ...] = ()
    """Those that hold in the next block, as ``name@version``, the protocol's first."""

    @property
    def rules(self) -> RuleSet[Any]:
        """The lane's rules with its state."""
        return self.processor.lane.rules

    @property
    def view(self) -> StateView:
        """How the lane's state is shown: as its protocol says, else by its traces' view."""
        return self.protocol.state_view or plain_view(self.protocol.traces)

    @property
    def handler_states(self) -> HandlerStates | None:
        """What handlers keep; None where the lane's protocol has no handlers."""
        states = self.protocol.handler_states
        return None if states is None else states(self.rules)


@contextmanager
def stored_lanes(directory: Path, lanes: Sequence[str] = ()) -> Iterator[StateExport]:
    """Read the checkpoint of a job's folder beside the job, by Spark in a process of its own, which takes 10 to 20 seconds.

    Heads are there of every lane, all else of those that are named; where none is, of all. On leaving the file is gone. Errors, in order:
    pyspark is not installed, there is no checkpoint, nothing is committed, the store cannot be read.
    """
    if find_spec("pyspark") is None:
        raise UserError("reading a checkpoint needs Spark, which is not installed: pip install 'validator[spark]'")
    checkpoint = directory / "checkpoint"
    last_committed_batch(checkpoint)
    with _temporary_folder(directory) as folder:
        output = folder / "lanes"
        read_checkpoint(checkpoint, output, lanes)
        yield StateExport(output)


def read_checkpoint(checkpoint: Path, output: Path, lanes: Sequence[str]) -> None:
    """Run `streaming.state_reader`. Raises `UserError` with its words."""
    command = [sys.executable, "-m", "streaming.state_reader", str(checkpoint.absolute()), str(output), *lanes]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    if ended.returncode == exit_codes.OK:
        return
    told = ended.stderr.decode(errors="replace").splitlines()
    reason = next((line for line in reversed(told) if line.startswith("validator: ")), None)
    if ended.returncode == exit_codes.USER_ERROR and reason is not None:
        raise UserError(reason.removeprefix("validator: "))
    raise RuntimeError(f"the reader of the checkpoint ended with {ended.returncode}:\n" + "\n".join(told[-40:]))


def restore(stored: StateExport, lane: str) -> RestoredState:
    """Bring a lane back. Raises `UserError` where it is not there, or is not what its head says."""
    if lane not in stored.lanes:
        known = ", ".join(stored.lanes) or "none: nothing has come yet"
        raise UserError(f"--lane: no lane {lane!r} in the checkpoint after batch {stored.batch}; there are: {known}")
    backend = stored.load(lane)
    assert backend.head is not None
    try:
        head = Head.decode(backend.head)
    except DecodeError as error:
        raise UserError(f"lane {lane}: its state in the checkpoint cannot be used: {error}") from error
    # where it once started is not asked for: everything else that decides is in the head
    definition = LaneDefinition.stored(lane, head.runtime_digest, head.rules, UNLIMITED)
    try:
        worker = restore_lane(definition, backend)
    except HandlerFault as fault:
        raise UserError(f"lane {lane}: its journal cannot be executed again: {fault}") from fault
    assert worker is not None
    under = definition.under(head.rules)
    plugins = tuple(under.plugins_at(worker.lane.executed_block + 1))
    return RestoredState(lane, stored.batch, stored.consumed, head, len(backend.slots), worker, under.protocol, plugins)


class KeptByPlugin(NamedTuple):
    """What a plugin's handlers keep: how many keys, and the bytes of keys and values together."""

    plugin: str
    keys: int
    bytes: int


def kept_by_plugins(lane: RestoredState) -> list[KeptByPlugin]:
    """Return what each plugin keeps, by name; plugins that keep nothing are left out."""
    states = lane.handler_states
    if states is None:
        return []
    keys = Counter(plugin for plugin, _, _ in states.entries())
    return [KeptByPlugin(plugin, keys[plugin], states.bytes_used[plugin]) for plugin in sorted(keys)]


def entries_of_plugin(lane: RestoredState, plugin: str) -> list[tuple[bytes, bytes]]:
    """Return key and value of all that a plugin keeps, by key. Raises `UserError` where that is nothing."""
    states = lane.handler_states
    entries = [] if states is None else [(key, value) for _, key, value in states.entries(plugin)]
    if not entries:
        known = ", ".join(each.plugin for each in kept_by_plugins(lane))
        raise UserError(
            f"--plugin: {plugin} keeps nothing in lane {lane.name} after block {lane.processor.lane.executed_block}; "
            f"these do: {known or 'none'}"
        )
    return entries


def about_para(lane: RestoredState, para: ParaId, part: T | None) -> T:
    """Return what a lane's view made of a para. Raises `UserError` where that is nothing."""
    if part is None:
        valid = lane.view.paras(lane.rules)
        known = ", ".join(map(str, valid[:10])) + (f" and {len(valid) - 10} more" if len(valid) > 10 else "")
        raise UserError(
            f"--para: lane {lane.name} knows nothing of para {para} after block {lane.processor.lane.executed_block}; "
            f"valid are: {known or 'none'}"
        )
    return part


def about_channel(lane: RestoredState, channel_id: ChannelId, part: T | None) -> T:
    """Return what a lane's view made of a channel. Raises `UserError` where that is nothing."""
    if part is None:
        sender, recipient = channel_id
        others = [each for each in lane.view.channels(lane.rules) if sender in each or recipient in each]
        known = ", ".join(f"{one},{other}" for one, other in others[:8]) + (" ..." if len(others) > 8 else "")
        raise UserError(
            f"--channel: lane {lane.name} has no channel {sender},{recipient} and no request for it; "
            f"channels of the two: {known or 'none'}"
        )
    return part


@contextmanager
def _temporary_folder(directory: Path) -> Iterator[Path]:
    """Yield a folder beside the checkpoint, so that links to its files can be made; elsewhere where that may not be written to."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="state-", dir=directory)
    except OSError:
        folder = tempfile.TemporaryDirectory(prefix="validator-state-")
    with folder as path:
        yield Path(path).absolute()
