# SPDX-License-Identifier: Apache-2.0
"""Restores a lane from the job's checkpoint into this process, while the job may be running."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from validator import exit_codes
from validator.ask.plain_view import view_of
from validator.checkpoint.files import last_committed_batch
from validator.core.handlers.errors import HandlerFault
from validator.core.lane import LaneSettings
from validator.core.limits import U32_MAX, U64_MAX
from validator.core.scale import DecodeError
from validator.errors import UserError, not_installed
from validator.lanes.definition import LaneDefinition
from validator.lanes.kept_start import digest_in_force
from validator.lanes.parked import stored_parts
from validator.lanes.store import Head, restore_lane
from validator.lanes.stored import StateExport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from validator.core.handlers.state import HandlerStates
    from validator.core.rules import LaneRules
    from validator.core.types import ChannelId, ParaId
    from validator.lanes.processor import LaneProcessor
    from validator.plugin.protocol_api import ProtocolDefinition, StateView


T = TypeVar("T")

UNLIMITED = LaneSettings(blocks_ahead_max=U32_MAX, waiting_bytes_max=U64_MAX)
"""Limits for restored lanes: records that were accepted once still fit, whatever the current limits are."""


@dataclass(frozen=True, slots=True)
class RestoredState:
    """A lane after a batch: the head of its store, and the lane in memory, under the rules that the store was written with."""

    name: str
    batch: int
    consumed: Mapping[tuple[str, int], int]
    """The offset after the last consumed record, by topic (with prefix) and partition."""
    head: Head
    slots: int
    processor: LaneProcessor
    protocol: ProtocolDefinition
    definition: LaneDefinition
    """The lane under those rules; its initial state is unknown."""
    plugins: tuple[str, ...] = ()
    """The plugins active in the next block as ``name@version``, the protocol first."""
    runtime_digest: bytes | None = None
    """The digest that the records of the executed block carry; None if it is not known (`lanes.kept_start.digest_in_force`)."""

    @property
    def rules(self) -> LaneRules[Any]:
        return self.processor.lane.rules

    @property
    def view(self) -> StateView:
        """The protocol's state view, or a plain view of its trace format."""
        return view_of(self.protocol)

    @property
    def handler_states(self) -> HandlerStates | None:
        """The handlers' state; None if the lane's protocol has no handlers."""
        states = self.protocol.handler_states
        return None if states is None else states(self.rules.state)


@contextmanager
def stored_lanes(directory: Path, lanes: Sequence[str] = ()) -> Iterator[StateExport]:
    """Read the checkpoint in a job's folder in a separate process; the job may be running.

    The export has the heads of all lanes, and everything else of the named lanes, or of all lanes if none is named. It is removed on exit.
    Errors, in order: a library is not installed, there is no checkpoint, nothing is committed, the store cannot be read.
    """
    if find_spec("rocksdict") is None:
        raise not_installed("rocksdict", "spark", for_="reading a checkpoint")
    checkpoint = directory / "checkpoint"
    last_committed_batch(checkpoint)
    with reading_folder(directory) as folder:
        output = folder / "lanes"
        read_checkpoint(checkpoint, output, lanes)
        yield StateExport(output)


def read_checkpoint(checkpoint: Path, output: Path, lanes: Sequence[str]) -> None:
    """Run `streaming.state_reader`. Raises `UserError` with its message."""
    command = [sys.executable, "-m", "streaming.state_reader", str(checkpoint.absolute()), str(output), *lanes]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    if ended.returncode == exit_codes.OK:
        return
    lines = ended.stderr.decode(errors="replace").splitlines()
    reason = next((line for line in reversed(lines) if line.startswith("validator: ")), None)
    if ended.returncode == exit_codes.USER_ERROR and reason is not None:
        raise UserError(reason.removeprefix("validator: "))
    raise RuntimeError(f"the checkpoint reader exited with {ended.returncode}:\n" + "\n".join(lines[-40:]))


def restore(stored: StateExport, lane: str, directory: Path | None = None) -> RestoredState:
    """Restore a lane; its runtime digest is known only from the job's ``directory``.

    Raises `UserError` if it is missing, or does not match its head, and if the lane was parked before it had any.
    """
    if lane not in stored.lanes:
        known = ", ".join(stored.lanes) or "none, no record has arrived yet"
        raise UserError(f"--lane: no lane {lane!r} in the checkpoint after batch {stored.batch}; lanes in it: {known}")
    backend = stored.load(lane)
    assert backend.head is not None
    try:
        parked, kept = stored_parts(backend.head)
        if kept is None and parked is not None:
            raise UserError(f"lane {lane}: it has no state yet: it was parked in its first batch: {parked.reason}")
        head = Head.decode(kept or b"")
        # the definition's start is not needed: everything else comes from the head
        definition = LaneDefinition.stored(lane, head.runtime_digest, head.rules, UNLIMITED)
    except DecodeError as error:
        raise UserError(f"lane {lane}: its state in the checkpoint cannot be used: {error}") from error
    try:
        processor = restore_lane(definition, backend)
    except HandlerFault as fault:
        raise UserError(f"lane {lane}: its journal cannot be executed again: {fault}") from fault
    assert processor is not None
    under = definition.under(head.rules)
    block = processor.lane.executed_block
    plugins = tuple(under.plugins_at(block + 1))
    digest = None if directory is None else digest_in_force(directory / "lanes", lane, head.runtime_digest, block)
    return RestoredState(
        lane, stored.batch, stored.consumed, head, len(backend.slots), processor, under.protocol, under, plugins, digest
    )


class KeptByPlugin(NamedTuple):
    """The size of a plugin's handler state: number of keys, and bytes of keys and values together."""

    plugin: str
    keys: int
    bytes: int


def kept_by_plugins(lane: RestoredState) -> list[KeptByPlugin]:
    """Return the size of each plugin's state, sorted by name; plugins that keep nothing are omitted."""
    states = lane.handler_states
    if states is None:
        return []
    keys = Counter(plugin for plugin, _, _ in states.entries())
    return [KeptByPlugin(plugin, keys[plugin], states.bytes_used[plugin]) for plugin in sorted(keys)]


def entries_of_plugin(lane: RestoredState, plugin: str) -> list[tuple[bytes, bytes]]:
    """Return all keys and values that a plugin keeps, sorted by key. Raises `UserError` if it keeps nothing."""
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
    """Return ``part``, a lane's view of a para. Raises `UserError` if it is None."""
    if part is None:
        valid = lane.view.paras(lane.rules.state)
        known = ", ".join(map(str, valid[:10])) + (f" and {len(valid) - 10} more" if len(valid) > 10 else "")
        raise UserError(
            f"--para: lane {lane.name} knows no para {para} after block {lane.processor.lane.executed_block}; "
            f"valid paras: {known or 'none'}"
        )
    return part


def about_channel(lane: RestoredState, channel_id: ChannelId, part: T | None) -> T:
    """Return ``part``, a lane's view of a channel. Raises `UserError` if it is None."""
    if part is None:
        sender, recipient = channel_id
        others = [each for each in lane.view.channels(lane.rules.state) if sender in each or recipient in each]
        known = ", ".join(f"{one},{other}" for one, other in others[:8]) + (" ..." if len(others) > 8 else "")
        raise UserError(
            f"--channel: lane {lane.name} has no channel {sender},{recipient} and no request for it; "
            f"channels of either para: {known or 'none'}"
        )
    return part


# --- as JSON -----------------------------------------------------------------------------------------------------------------------------
# A header, and the state under the state keys of the conformance format. If the protocol has state files, `validator lanes import` accepts
# the document of a complete lane (its first_block and state). Values for which a state file has no key are next to state.


def plugin_document(lane: RestoredState, plugin: str, limit: int) -> dict[str, Any]:
    """Return a plugin's state, at most ``limit`` entries of it (0: all). Raises `UserError` if it keeps nothing."""
    entries = entries_of_plugin(lane, plugin)
    shown = entries[:limit] if limit else entries
    return {
        **header(lane),
        "plugin": plugin,
        "keys": len(entries),
        "bytes": sum(len(key) + len(value) for key, value in entries),
        "entries": [{"key": key.hex(), "value": value.hex()} for key, value in shown],
    }


def document(lane: RestoredState, para: ParaId | None = None, channel: ChannelId | None = None) -> dict[str, Any]:
    """Return a lane, or its part about a para or a channel. Raises `UserError` if that part does not exist."""
    state, view, protocol = lane.rules.state, lane.view, lane.protocol
    if channel is not None:
        return {**header(lane), **about_channel(lane, channel, view.channel_document(state, channel))}
    if para is not None:
        return {**header(lane), **about_para(lane, para, view.para_document(state, para))}
    whole = {**header(lane), **view.whole_document(state)}
    if protocol.handler_states is not None:
        whole["kept_by_plugins"] = [each._asdict() for each in kept_by_plugins(lane)]
    written = protocol.traces.view(state) if protocol.state_file is None else protocol.state_file.write(state)
    return {**whole, "state": written}


def header(lane: RestoredState) -> dict[str, Any]:
    """Return a lane's progress and the figures of its store; ``consumed`` is by topic and partition."""
    inner, head = lane.processor.lane, lane.head
    consumed: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(lane.consumed.items()):
        consumed.setdefault(topic, {})[str(partition)] = offset
    return {
        "lane": lane.name,
        "batch": lane.batch,
        "executed_block": inner.executed_block,
        "first_block": inner.executed_block + 1,
        "session": inner.rules.session,
        "state_root": inner.rules.state_root().hex(),
        "summary": lane.processor.summary().hex(),
        "runtime_digest": None if lane.runtime_digest is None else lane.runtime_digest.hex(),
        "plugins": list(lane.plugins),
        "counters": asdict(inner.counters),
        "waiting_for": inner.waits_for(),
        "waiting_bytes": inner.waiting_bytes,
        "consumed": consumed,
        "store": {
            "slots": lane.slots,
            "slots_bytes": head.slots_bytes,
            "slots_hash": head.slots_hash.hex(),
            "journal_entries": head.journal_entries,
            "journal_bytes": head.journal_bytes,
            "digest_of_all_epochs": head.runtime_digest.hex(),
        },
    }


# --- the folder in which a process reads a checkpoint -------------------------------------------------------------------------------------
#
# A process holds a lock on its folder as long as it lives. So any other process, in another container too, knows that a folder is left over
# if it gets the lock.

PREFIX: Final = "reading-state-"
"""Begins the names of these folders in a job's folder."""


@contextmanager
def reading_folder(directory: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the checkpoint, where links to its files work; elsewhere if that place is not writable.

    First removes the folders there whose processes are gone.
    """
    _remove_left(directory)
    try:
        folder, lock = _locked_folder(directory)
    except OSError:
        with tempfile.TemporaryDirectory(prefix=f"validator-{PREFIX}") as path:
            yield Path(path).absolute()
        return
    try:
        yield folder.absolute()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder(directory: Path) -> tuple[Path, int]:
    """Make a folder, and return it with the descriptor that holds its lock. Raises ``OSError``."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=directory))
        with suppress(
            FileNotFoundError, BlockingIOError
        ):  # another process has found it without a lock, and removes it
            return folder, _lock(folder)


def _remove_left(directory: Path) -> None:
    for folder in sorted(directory.glob(f"{PREFIX}*")):
        with suppress(OSError):
            lock = _lock(folder, needed=True)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path, *, needed: bool = False) -> int:
    """Return a descriptor that holds the lock of a folder, or none where files cannot be locked, unless it is ``needed``.

    Raises ``BlockingIOError`` if another process has the lock, ``FileNotFoundError`` if the folder is gone, and another ``OSError``.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if needed or isinstance(error, BlockingIOError):
                raise
        if not os.path.samestat(os.fstat(descriptor), folder.stat()):
            raise FileNotFoundError(folder)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
