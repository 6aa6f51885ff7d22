# SPDX-License-Identifier: Apache-2.0
"""A lane as it stands in the job's checkpoint, brought back into this process while the job runs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from validator import exit_codes
from validator.core.handlers.errors import HandlerFault
from validator.core.lane import LaneSettings
from validator.core.limits import U32_MAX, U64_MAX
from validator.core.scale import DecodeError
from validator.errors import UserError
from validator.lanes.definition import LaneDefinition
from validator.lanes.store import Head, restore_lane
from validator.lanes.stored import StoredLanes
from validator.protocols.router.encoding import encode_para_page
from validator.protocols.router.rules import Router
from validator.protocols.router.state import RouterState
from validator.service.checkpoint import last_committed_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.core.types import ChannelId, ParaId
    from validator.lanes.worker import LaneWorker

K = TypeVar("K")
V = TypeVar("V")

UNLIMITED = LaneSettings(blocks_ahead_max=U32_MAX, waiting_bytes_max=U64_MAX)
"""What was taken once fits, whatever the limits are by now."""


@dataclass(frozen=True, slots=True)
class RestoredLane:
    """A lane after a batch: the head of its store, and the lane in memory, under the rules that it was stored under."""

    name: str
    batch: int
    consumed: Mapping[tuple[str, int], int]
    """What the batch and those before it have taken, by topic with the prefix and partition: the offset after the last record."""
    head: Head
    slots: int
    worker: LaneWorker
    plugins: tuple[str, ...] = ()
    """Those that hold in the next block, as ``name@version``, the protocol's first."""

    @property
    def router(self) -> Router:
        """The lane's rules, where they are the Router's. Raises `UserError`."""
        rules = self.worker.lane.rules
        if not isinstance(rules, Router):
            raise UserError(f"lane {self.name}: its protocol's state has no form to be shown in")
        return rules


@contextmanager
def stored_lanes(directory: Path, lanes: Sequence[str] = ()) -> Iterator[StoredLanes]:
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
        yield StoredLanes(output)


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


def restore(stored: StoredLanes, lane: str) -> RestoredLane:
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
    plugins = definition.under(head.rules).plugins_at(worker.lane.executed_block + 1)
    return RestoredLane(lane, stored.batch, stored.consumed, head, len(backend.slots), worker, tuple(plugins))


class KeptByPlugin(NamedTuple):
    """What a plugin's handlers keep: how many keys, and the bytes of keys and values together."""

    plugin: str
    keys: int
    bytes: int


def kept_by_plugins(lane: RestoredLane) -> list[KeptByPlugin]:
    """Return what each plugin keeps, by name; plugins that keep nothing are left out. Raises `UserError` for another protocol's lane."""
    states = lane.router.state.handler_states
    keys = Counter(plugin for plugin, _, _ in states.entries())
    return [KeptByPlugin(plugin, keys[plugin], states.bytes_used[plugin]) for plugin in sorted(keys)]


def entries_of_plugin(lane: RestoredLane, plugin: str) -> list[tuple[bytes, bytes]]:
    """Return key and value of all that a plugin keeps, by key. Raises `UserError` where that is nothing."""
    entries = [(key, value) for _, key, value in lane.router.state.handler_states.entries(plugin)]
    if not entries:
        known = ", ".join(each.plugin for each in kept_by_plugins(lane))
        raise UserError(
            f"--plugin: {plugin} keeps nothing in lane {lane.name} after block {lane.worker.lane.executed_block}; "
            f"these do: {known or 'none'}"
        )
    return entries


def state_of_para(lane: RestoredLane, para: ParaId) -> RouterState:
    """Return what of a lane's state is about a para: what it owns, its channels and requests both ways.

    Raises `UserError` where there is nothing.
    """
    state = lane.router.state
    channels = [(sender, para) for sender in state.hrmp_ingress_channels_index.get(para, ())]
    channels += [(para, recipient) for recipient in state.hrmp_egress_channels_index.get(para, ())]
    channels += [channel_id for channel_id in state.hrmp_open_channel_requests_list if para in channel_id]
    if not channels and encode_para_page(state, para) is None:
        valid = sorted(state.paras)
        known = ", ".join(map(str, valid[:10])) + (f" and {len(valid) - 10} more" if len(valid) > 10 else "")
        raise UserError(
            f"--para: lane {lane.name} knows nothing of para {para} after block {lane.worker.lane.executed_block}; "
            f"valid are: {known or 'none'}"
        )
    return _part(state, (para,), dict.fromkeys(channels))


def state_of_channel(lane: RestoredLane, channel_id: ChannelId) -> RouterState:
    """Return what of a lane's state is about a channel or the request for one. Raises `UserError` where there is neither."""
    state = lane.router.state
    sender, recipient = channel_id
    if channel_id not in state.hrmp_channels and channel_id not in state.hrmp_open_channel_requests:
        others = sorted(each for each in state.hrmp_channels if sender in each or recipient in each)
        known = ", ".join(f"{one},{other}" for one, other in others[:8]) + (" ..." if len(others) > 8 else "")
        raise UserError(
            f"--channel: lane {lane.name} has no channel {sender},{recipient} and no request for it; "
            f"channels of the two: {known or 'none'}"
        )
    return _part(state, (), (channel_id,))


def _part(state: RouterState, paras: Collection[ParaId], channels: Collection[ChannelId]) -> RouterState:
    """Return a state with what some paras own, and some channels and requests."""
    return RouterState(
        state.host_configuration,
        state.balances_mode,
        state.hrmp_notifications,
        state.session_index,
        paras=_only(state.paras, paras),
        accounts=_only(state.accounts, paras),
        outgoing_paras=[para for para in state.outgoing_paras if para in paras],
        pending_candidates=_only(state.pending_candidates, paras),
        relay_dispatch_queues=_only(state.relay_dispatch_queues, paras),
        relay_dispatch_queue_size=_only(state.relay_dispatch_queue_size, paras),
        needs_dispatch=[para for para in state.needs_dispatch if para in paras],
        next_dispatch_round_start_with=(
            state.next_dispatch_round_start_with if state.next_dispatch_round_start_with in paras else None
        ),
        downward_message_queues=_only(state.downward_message_queues, paras),
        downward_message_queue_heads=_only(state.downward_message_queue_heads, paras),
        downward_messages_sent=_only(state.downward_messages_sent, paras),
        hrmp_open_channel_requests=_only(state.hrmp_open_channel_requests, channels),
        hrmp_open_channel_requests_list=[each for each in state.hrmp_open_channel_requests_list if each in channels],
        hrmp_open_channel_request_count=_only(state.hrmp_open_channel_request_count, paras),
        hrmp_uncounted_requests=_only(state.hrmp_uncounted_requests, paras),
        hrmp_accepted_channel_request_count=_only(state.hrmp_accepted_channel_request_count, paras),
        hrmp_close_channel_requests=_only(state.hrmp_close_channel_requests, channels),
        hrmp_close_channel_requests_list=[each for each in state.hrmp_close_channel_requests_list if each in channels],
        hrmp_watermarks=_only(state.hrmp_watermarks, paras),
        hrmp_channels=_only(state.hrmp_channels, channels),
        hrmp_ingress_channels_index=_only(state.hrmp_ingress_channels_index, paras),
        hrmp_egress_channels_index=_only(state.hrmp_egress_channels_index, paras),
        hrmp_channel_contents=_only(state.hrmp_channel_contents, channels),
        hrmp_channel_digests=_only(state.hrmp_channel_digests, paras),
    )


def _only(whole: Mapping[K, V], keys: Collection[K]) -> dict[K, V]:
    return {key: whole[key] for key in keys if key in whole}


@contextmanager
def _temporary_folder(directory: Path) -> Iterator[Path]:
    """Yield a folder beside the checkpoint, so that links to its files can be made; elsewhere where that may not be written to."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="state-", dir=directory)
    except OSError:
        folder = tempfile.TemporaryDirectory(prefix="validator-state-")
    with folder as path:
        yield Path(path).absolute()
