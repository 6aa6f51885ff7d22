# SPDX-License-Identifier: Apache-2.0
"""Builds lanes from the configuration: where each starts, and the digest of everything that decides its verdicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from validator.codec.codec import Codec
from validator.config import DEFAULT_PROTOCOL, Chain, Config, configuration_digest
from validator.config.limits import check_table, find_limits
from validator.core.errors import InvariantBroken
from validator.core.execute import Intervals
from validator.core.lane import Lane, LaneSettings
from validator.core.rules import LaneRules, pages
from validator.core.types import Balances, BlockNumber, Enactment
from validator.document import Node, read_document
from validator.errors import UserError
from validator.hexadecimal import from_hex
from validator.lanes.definition import Genesis, LaneDefinition, genesis_path, kept_genesis
from validator.plugin.lock import Lock, read_lock
from validator.plugin.pack import use_artefacts
from validator.plugin.protocol_api import LIMITS, ChainSettings, ProtocolDefinition
from validator.plugin.registry import PluginError, canonical
from validator.plugin.rule_choice import read_rules
from validator.plugin.runtime import HandlerUse, RulesUse, Runtime, RuntimePlan, codec_of, make_runtime
from validator.resources import state_directory


def job_directory(config: Config) -> Path:
    """Return the absolute path of the folder of the job's checkpoint, imported states and logs."""
    return Path(config.job.directory).absolute() if config.job.directory else state_directory() / "job"


def imported_state_path(config: Config, lane: str) -> Path:
    """Return where `validator lanes import` puts a lane's state."""
    return job_directory(config) / "lanes" / f"{lane}.json"


def lane_definitions(config: Config) -> dict[str, LaneDefinition]:
    """Return the definitions of all configured chains, by lane, for the job; it caches states of state files as pages in its folder.

    Raises `UserError` if a state file is not usable.
    """
    folder = job_directory(config) / "lanes"
    return {lane: lane_definition(config, lane, kept_in=folder) for lane in sorted(config.chains)}


def lane_definition(config: Config, lane: str, *, kept_in: Path | None = None) -> LaneDefinition:
    """Return the definition of one configured chain. Raises `UserError` if its state file is not usable."""
    chain = started_chain(config, lane)
    runtime = _checked_runtime(config, chain, lane)
    digest = runtime.digest
    protocol = runtime.protocol
    if kept_in is None or chain.state is None:
        first_block, genesis = _start(chain, runtime, lane)
    else:
        kept = genesis_path(kept_in, lane, digest, protocol.encoding_version)
        first_block, genesis = kept_genesis(kept, lambda: _start(chain, runtime, lane))
    job = config.job
    headroom = chain.headroom_interval() if job.headroom_interval_blocks is None else job.headroom_interval_blocks
    return LaneDefinition(
        name=lane,
        runtime_digest=digest,
        genesis=genesis,
        first_block=first_block,
        enactment=Enactment(chain.enactment),
        settings=LaneSettings(
            blocks_ahead_max=job.blocks_ahead_max,
            waiting_bytes_max=job.waiting_bytes_max,
            duplicate_window_blocks=job.duplicate_window_blocks,
            intervals=Intervals(headroom=headroom, root=job.root_interval_blocks),
        ),
        upward_weights=chain.core_ump_weights(),
        upward_default_weight=chain.ump_default_weight,
        upward_failing=frozenset(from_hex(payload.lower()) for payload in chain.ump_failing_messages),
        plan=runtime.plan,
        epochs=runtime.epochs,
        upward_weight_max=chain.ump_message_weight_max,
        handler_seconds_max=job.handler_seconds_max,
    )


def definition_beside(config: Config, lane: str) -> LaneDefinition:
    """Return a lane's definition next to a job, in whose folder nothing changes. The genesis stored there is reused, which is much faster.

    Raises `UserError` as `lane_definition` does.
    """
    with TemporaryDirectory() as folder:
        for kept in (job_directory(config) / "lanes").glob(f"{lane}-*"):
            (Path(folder) / kept.name).symlink_to(kept.absolute())
        return lane_definition(config, lane, kept_in=Path(folder))


def started_chain(config: Config, lane: str) -> Chain:
    """Return a configured chain with the state file that it starts from: its own or an imported one."""
    chain = config.chains[lane]
    imported = imported_state_path(config, lane)
    return chain.model_copy(update={"state": str(imported)}) if chain.state is None and imported.exists() else chain


def check_chains(config: Config) -> None:
    """Raise `UserError` for the first chain, by name, with limits, rules or plugins that the job would refuse; states are not read."""
    for lane in sorted(config.chains):
        _checked_runtime(config, config.chains[lane], lane)


def configured_codec(config: Config) -> Codec:
    """Return the codec of all configured chains, or of the default protocol if there are none. Raises `UserError`."""
    protocols = {chain.protocol for chain in config.chains.values()} or {DEFAULT_PROTOCOL}
    return codec_of(map(RuntimePlan, protocols))


def protocol_of(config: Config, lane: str) -> str:
    """Return the protocol of a chain, or the default one if the chain is not configured."""
    chain = config.chains.get(lane)
    return DEFAULT_PROTOCOL if chain is None else chain.protocol


def configured_lock(config: Config) -> Lock | None:
    """Return the lock that the configuration names, or None if it names none. Raises `UserError`."""
    return None if config.plugins.lock is None else read_lock(Path(config.plugins.lock))


def chain_runtime(chain: Chain, lane: str, lock: Lock | None = None) -> Runtime:
    """Return the runtime of a chain, with a digest of everything that decides its verdicts besides its inputs.

    Raises `UserError` with all errors of its plugins, starting with plugins that the lock does not name.
    """
    uses = None
    if chain.handlers is not None:
        uses = tuple(
            HandlerUse(use.name, use.version, use.from_block, canonical(use.config), use.removed)
            for use in sorted(chain.handlers, key=lambda use: (use.name, use.from_block))
        )
    try:
        rules = _chain_rules(chain, lane)
        return make_runtime(RuntimePlan(chain.protocol, configuration_digest(chain).hex(), uses, lock, rules))
    except PluginError as error:
        raise UserError(f"chain {lane}: {error}") from error


def rules_runtime(chain: Chain, lane: str) -> Runtime:
    """Return a runtime with a chain's protocol and rules by height, without handlers. Raises `UserError` with all errors of its plugin."""
    try:
        return make_runtime(RuntimePlan(chain.protocol, rules=_chain_rules(chain, lane)))
    except PluginError as error:
        raise UserError(f"chain {lane}: {error}") from error


def read_state_file(path: Path, chain: Chain, lane: str, runtime: Runtime) -> tuple[BlockNumber, LaneRules[Any]]:
    """Return the first block and the rules in the state of a STATE.json, under a chain's configuration.

    The file is an object with ``first_block`` and ``state`` (`plugin.protocol_api.StateFile`), or the state alone; then the chain's own
    ``first_block`` applies. Raises `UserError`: the chain's limits, a protocol without state files, the file.
    """
    settings, protocol = _settings(chain, lane, runtime), runtime.protocol
    if protocol.state_file is None:
        raise UserError(f"chains.{lane}.state: protocol {protocol.name} cannot start from a state file")
    document = read_document(path)
    first_block = document.get("first_block", Node.integer, chain.first_block)
    if first_block == 0:
        raise document["first_block"].fail("a block from 1 on")
    if not document.object().keys() - {"first_block"}:
        raise document.fail("the keys of a state, alone or under the key state")
    state = document["state"] if document.has("state") else document
    rules = LaneRules(protocol.rule_set, protocol.state_file.read(state, settings), settings)
    try:
        rules.check_start(first_block)
    except ValueError as error:
        raise UserError(f"{state.path}.{error}") from None
    return first_block, rules


def limit_differences(one: Chain, other: Chain, protocol: ProtocolDefinition) -> frozenset[str]:
    """Return the limits to which two configurations of a chain give different values."""
    first, second = (_limits(chain, protocol) for chain in (one, other))
    return frozenset(name for name in {*first, *second} if first.get(name) != second.get(name))


def modes_differ(one: Chain, other: Chain) -> bool:
    """Return whether two configurations of a chain differ in what a state holds besides its limits."""
    return (one.balances, one.hrmp_notifications) != (other.balances, other.hrmp_notifications)


def continued(
    config: Config, definition: LaneDefinition, lane: Lane, limits: Collection[str], *, modes: bool = False
) -> Lane:
    """Return a lane with the state and the waiting records of another one, under a configuration of which only some limits apply.

    Handlers and rules by height come from the definition, the modes from the configuration if they differ (``modes``). Every other
    limit keeps the value in force. Raises `UserError`: the protocol cannot change limits in the middle of a chain, or the state cannot
    exist under the configuration.
    """
    name, protocol = definition.name, definition.protocol
    followed = definition.restore(lane.snapshot())
    rules, first_block = followed.rules, lane.executed_block + 1
    if limits or modes:
        if protocol.reconfigure is None:
            raise UserError(
                f"lane {name}: protocol {protocol.name} cannot take other limits or modes in the middle of a chain: compare from the first "
                "block on"
            )
        settings = _settings(config.chains[name], name, make_runtime(definition.plan))
        try:
            protocol.reconfigure(rules.state, settings, frozenset(limits))
        except ValueError as error:
            raise UserError(f"lane {name}: {error}") from None
    try:
        rules.check_start(first_block)
        if protocol.invariants is not None:
            protocol.invariants(rules.state, rules.env.profile)
    except (ValueError, InvariantBroken) as error:
        raise UserError(
            f"lane {name}: its state cannot exist under the configuration in block {first_block}: {error}"
        ) from None
    return followed


def _limits(chain: Chain, protocol: ProtocolDefinition) -> Mapping[str, Any]:
    table = protocol.limits_table
    given = chain.limit_tables()
    return given.get(LIMITS, {}) if table is None else table.resolve(given.get(table.key, {}))


def _checked_runtime(config: Config, chain: Chain, lane: str) -> Runtime:
    use_artefacts(config.plugins.artefacts)
    table = find_limits(chain.protocol).table
    if table is not None:
        check_table(table, chain.limit_tables().get(table.key, {}), f"chains.{lane}")
    return chain_runtime(chain, lane, configured_lock(config))


def _chain_rules(chain: Chain, lane: str) -> tuple[RulesUse, ...] | None:
    """Return the rules by height that a chain lists, or None if it lists none. Raises `UserError`, `PluginError`."""
    if not chain.rules:
        return None
    profiles = make_runtime(RuntimePlan(chain.protocol)).protocol.rule_profiles
    path = f"chains.{lane}.rules"
    if profiles is None:
        raise UserError(f"{path}: protocol {chain.protocol} has one set of rules: expected no list")
    listed = [entry.model_dump(exclude_none=True) for entry in chain.rules]
    return read_rules(profiles, Node(listed, path))


def _configuration(chain: Chain, lane: str, protocol: ProtocolDefinition) -> Any:
    """Return a chain's limits as the protocol's own class. Raises `UserError`, first for a table whose key every chain has."""
    table = protocol.limits_table
    key = LIMITS if table is None else table.key
    if key != LIMITS and key in type(chain).model_fields:
        raise UserError(
            f"chain {lane}: protocol {protocol.name} keeps its limits in the table {key}, which is a key of every chain: its author must "
            f"give limits_table another key"
        )
    given = chain.limit_tables()
    for name in given:
        if name != key and given[name]:
            raise UserError(f"chains.{lane}.{name}: expected {key}, which holds the limits of protocol {protocol.name}")
    values = given.get(key, {})
    path = f"chains.{lane}.{key}"
    if table is None:
        for name in values:
            if name not in protocol.limits:
                raise UserError(
                    f"{path}.{name}: no such limit of {protocol.name}; known are {', '.join(protocol.limits)}"
                )
        return protocol.configuration(Node(values, path))
    check_table(table, values, f"chains.{lane}")
    return protocol.configuration(Node(table.resolve(values), path))


def _settings(chain: Chain, lane: str, runtime: Runtime) -> ChainSettings:
    return ChainSettings(
        _configuration(chain, lane, runtime.protocol),
        chain.core_paras(),
        balances=Balances(chain.balances),
        notifications=chain.hrmp_notifications,
        rules=runtime.rules,
    )


def _start(chain: Chain, runtime: Runtime, lane: str) -> Genesis:
    """Return a chain's first block and the pages of the state before it."""
    if chain.state is None:
        return chain.first_block, tuple(pages(runtime.protocol.rule_set.at_genesis(_settings(chain, lane, runtime))))
    first_block, rules = read_state_file(Path(chain.state), chain, lane, runtime)
    return first_block, tuple(pages(rules))
