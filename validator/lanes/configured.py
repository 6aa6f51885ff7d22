# SPDX-License-Identifier: Apache-2.0
"""From configuration to lanes: where each starts, and the digest of everything that decides its verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from validator.codec.codec import Codec
from validator.config import DEFAULT_PROTOCOL, Chain, Config, configuration_digest
from validator.config.model import HostConfigurationTable
from validator.core.execute import Intervals
from validator.core.lane import LaneSettings
from validator.core.rules import pages
from validator.core.types import BlockNumber
from validator.document import Node, read_document
from validator.errors import UserError
from validator.lanes.definition import LaneDefinition
from validator.lanes.genesis import Genesis, genesis_path, kept_genesis
from validator.plugin.api import ChainSettings
from validator.plugin.lock import Lock, read_lock
from validator.plugin.pack import use_artefacts
from validator.plugin.registry import PluginError, canonical
from validator.plugin.runtime import HandlerUse, Runtime, RuntimePlan, codec_of, make_runtime
from validator.protocols.router.rules import Router
from validator.protocols.router.state import RouterState
from validator.protocols.router.statefile import read_state
from validator.resources import state_directory


def job_directory(config: Config) -> Path:
    """Return the folder of the job's checkpoint, imported states and logs."""
    return Path(config.job.directory) if config.job.directory else state_directory() / "job"


def imported_state_path(config: Config, lane: str) -> Path:
    """Return where `validator lanes import` puts a lane's state."""
    return job_directory(config) / "lanes" / f"{lane}.json"


def lane_definitions(config: Config) -> dict[str, LaneDefinition]:
    """Return the definition of every configured chain, by lane, for the job: states that files hold are kept as pages in its folder.

    Raises `UserError` where a state file is not usable.
    """
    folder = job_directory(config) / "lanes"
    return {lane: lane_definition(config, lane, kept_in=folder) for lane in sorted(config.chains)}


def lane_definition(config: Config, lane: str, *, kept_in: Path | None = None) -> LaneDefinition:
    """Return the definition of one configured chain. Raises `UserError` where its state file is not usable."""
    chain = config.chains[lane]
    imported = imported_state_path(config, lane)
    if chain.state is None and imported.exists():
        chain = chain.model_copy(update={"state": str(imported)})
    use_artefacts(config.plugins.artefacts)
    runtime = chain_runtime(chain, lane, configured_lock(config))
    digest = runtime.digest
    if kept_in is None or chain.state is None:
        first_block, genesis = _start(chain, runtime, lane)
    else:
        first_block, genesis = kept_genesis(genesis_path(kept_in, lane, digest), lambda: _start(chain, runtime, lane))
    job = config.job
    return LaneDefinition(
        name=lane,
        runtime_digest=digest,
        genesis=genesis,
        first_block=first_block,
        enactment=chain.core_enactment(),
        settings=LaneSettings(
            blocks_ahead_max=job.blocks_ahead_max,
            waiting_bytes_max=job.waiting_bytes_max,
            duplicate_window_blocks=job.duplicate_window_blocks,
            intervals=Intervals(headroom=job.headroom_interval_blocks, root=job.root_interval_blocks),
        ),
        upward_weights=chain.core_ump_weights(),
        upward_default_weight=chain.ump_default_weight,
        upward_failing=frozenset(bytes.fromhex(payload) for payload in chain.ump_failing_messages),
        plan=runtime.plan,
        epochs=runtime.epochs,
        upward_weight_max=chain.ump_message_weight_max,
        handler_seconds_max=job.handler_seconds_max,
    )


def configured_codec(config: Config) -> Codec:
    """Return how the records of all configured chains are read, those of the default protocol where none is. Raises `UserError`."""
    protocols = {chain.protocol for chain in config.chains.values()} or {DEFAULT_PROTOCOL}
    return codec_of(map(RuntimePlan, protocols))


def protocol_of(config: Config, lane: str) -> str:
    """Return the protocol of a chain, the default one where the chain is not configured."""
    chain = config.chains.get(lane)
    return DEFAULT_PROTOCOL if chain is None else chain.protocol


def configured_lock(config: Config) -> Lock | None:
    """Return the lock that the configuration names, None where it names none. Raises `UserError`."""
    return None if config.plugins.lock is None else read_lock(Path(config.plugins.lock))


def chain_runtime(chain: Chain, lane: str, lock: Lock | None = None) -> Runtime:
    """Return what judges a chain, with a digest of everything that decides its verdicts beside its inputs.

    Raises `UserError` with everything that is wrong with its plugins, first of all that a lock does not name them.
    """
    uses = None
    if chain.handlers is not None:
        uses = tuple(
            HandlerUse(use.name, use.version, use.from_block, canonical(use.config), use.removed)
            for use in sorted(chain.handlers, key=lambda use: (use.name, use.from_block))
        )
    try:
        return make_runtime(RuntimePlan(chain.protocol, configuration_digest(chain).hex(), uses, lock))
    except PluginError as error:
        raise UserError(f"chain {lane}: {error}") from error


def read_state_file(path: Path, chain: Chain) -> tuple[BlockNumber, RouterState]:
    """Return the first block and the state of a STATE.json under a chain's configuration.

    The file is an object with ``first_block`` and ``state`` (state keys of the conformance format), or the state keys alone, and then the
    chain's own ``first_block`` holds. Raises `UserError`.
    """
    document = read_document(path)
    first_block = document.get("first_block", Node.integer, chain.first_block)
    if first_block == 0:
        raise document["first_block"].fail("a block from 1 on")
    state = read_state(
        document["state"] if document.has("state") else document,
        chain.host_configuration.resolve(),
        balances=chain.core_balances(),
        notifications=chain.hrmp_notifications,
    )
    return first_block, state


def _configuration(chain: Chain, runtime: Runtime, lane: str) -> Any:
    """Return a chain's limits in the class of its protocol. Raises `UserError`."""
    if chain.protocol == DEFAULT_PROTOCOL:
        return chain.host_configuration.resolve()
    if chain.host_configuration != HostConfigurationTable():
        raise UserError(
            f"chains.{lane}.host_configuration: expected limits, by which protocol {chain.protocol} is configured"
        )
    node = Node(chain.limits, f"chains.{lane}.limits")
    for name in chain.limits:
        if name not in runtime.protocol.limits:
            raise UserError(
                f"{node.path}.{name}: no such limit of {chain.protocol}; there are {', '.join(runtime.protocol.limits)}"
            )
    return runtime.protocol.configuration(node)


def _start(chain: Chain, runtime: Runtime, lane: str) -> Genesis:
    """Return a chain's first block and the pages of the state before it."""
    if chain.state is not None:
        if chain.protocol != DEFAULT_PROTOCOL:
            raise UserError(
                f"chains.{lane}.state: a state to start from can be given to protocol {DEFAULT_PROTOCOL} only"
            )
        first_block, state = read_state_file(Path(chain.state), chain)
        return first_block, tuple(pages(Router(state)))
    settings = ChainSettings(
        _configuration(chain, runtime, lane),
        chain.core_paras(),
        balances=chain.core_balances(),
        notifications=chain.hrmp_notifications,
    )
    return chain.first_block, tuple(pages(runtime.protocol.genesis(settings)))
