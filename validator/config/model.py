# SPDX-License-Identifier: Apache-2.0
"""Every key of `validator.toml`, with its unit, default and meaning. `examples/validator.toml` has them all."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from validator.config.environment import EnvironmentSource
from validator.config.explain import as_input
from validator.config.limits import limit_errors
from validator.config.registry import SchemaRegistry
from validator.core import limits as core_limits
from validator.core.handlers.handler import KIND
from validator.core.types import Balances, Enactment, Para, ParaKind
from validator.hexadecimal import from_hex
from validator.metrics.address import parse_address
from validator.metrics.limits import CHANNELS_MAX_DEFAULT, PARAS_MAX_DEFAULT, SUBJECTS_MAX
from validator.registry_keys import REGISTRY_PREFIX
from validator.tables import dotted
from validator.topics import TOPICS

DEFAULT_PROTOCOL: Final = "router"
"""Protocol of a chain that names none: a plugin of group `validator.protocols`."""

LANE_PATTERN: Final = rf"^[a-z0-9][a-z0-9._-]{{0,{core_limits.LANE_NAME_LENGTH_MAX - 1}}}$"
"""Names of lanes, which are Kafka keys and parts of file names."""

TOPIC_NAMES: Final = tuple(topic.name for topic in TOPICS)
COMPACTED_TOPICS: Final = tuple(topic.name for topic in TOPICS if topic.cleanup == "compact")

PluginName = Annotated[str, Field(pattern=rf"^{KIND.pattern}$")]
LaneName = Annotated[str, Field(pattern=LANE_PATTERN)]
U32 = Annotated[int, Field(ge=0, le=core_limits.U32_MAX)]
U63 = Annotated[int, Field(ge=0, le=2**63 - 1)]
U128 = Annotated[int, Field(ge=0, le=core_limits.U128_MAX)]
Positive = Annotated[int, Field(ge=1, le=2**63 - 1)]
Retention = Annotated[int, Field(ge=-1, le=2**63 - 1)]
Partitions = Annotated[int, Field(ge=1, le=10_000)]


def _check_plain(values: dict[str, Any]) -> dict[str, Any]:
    """Reject values that JSON cannot hold: plugins get their configuration as JSON."""
    try:
        json.dumps(values, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError(
            "expected text, numbers, booleans, lists and tables, found a date, a time, nan or inf"
        ) from None
    return values


def _check_address(value: str) -> str:
    parse_address(value)
    return value


PluginConfig = Annotated[dict[str, Any], AfterValidator(_check_plain)]
"""A plugin's own configuration; the plugin defines its keys."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Topics(_Table):
    """`[topics]`: names and shape of the Kafka topics."""

    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}$")] = "validator."
    """Prefix of every topic's name."""
    input_partitions: Partitions = 1
    """Partitions of each input topic: the parallelism of decoding; use as many as there are busy relay chains."""
    output_partitions: Partitions = 1
    """Partitions of each output topic."""
    replication_factor: Annotated[int, Field(ge=-1, le=100)] = -1
    """Replicas of every topic; -1 is the cluster's default."""
    retention_ms: dict[str, Retention] = Field(default_factory=dict)
    """Milliseconds that a topic keeps its records, by topic without the prefix; -1 means forever. Other topics keep their default."""

    @field_validator("retention_ms")
    @classmethod
    def _check_retention(cls, value: dict[str, int]) -> dict[str, int]:
        for name in value:
            if name in COMPACTED_TOPICS:
                raise ValueError(f"no retention for {name!r}: a compacted topic keeps the last record of each key")
            if name not in TOPIC_NAMES:
                close = get_close_matches(name, TOPIC_NAMES, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(TOPIC_NAMES)}"
                raise ValueError(f"{name!r} is none of the topics; {hint}")
        return value


class Job(_Table):
    """`[job]`: how the Spark job runs and what a lane may hold."""

    directory: str = ""
    """Folder of checkpoint, lane state and logs; driver and executors reach it by the same path. Empty means below the state directory."""
    master: Annotated[str, Field(min_length=1)] = "local[*]"
    """Spark master URL."""
    state_partitions: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Partitions of the lane operator: one in local mode, on a cluster a few per single-core executor."""
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = "2g"
    """Heap of the driver (and, in local mode, of everything but Python), in Spark's notation: 512m, 2g."""
    worker_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = "4g"
    """Memory that a Python worker executing lanes may allocate: 512m, 4g; beyond it the job stops with an error."""
    jit: Literal["quick", "full"] = "quick"
    """How Spark's JVM compiles: quickly, which halves the processor time of a start, or fully, with the second compiler, too."""
    trigger_interval_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 0
    """Milliseconds from the start of one micro-batch to the next; 0 starts the next as soon as there is work."""
    max_records_per_trigger: Positive = 200_000
    """Maximum Kafka records per micro-batch, all input topics together."""
    rebuild: bool = False
    """Whether a job without a checkpoint may start on topics that hold its verdicts; it emits only what has not been emitted."""
    give_up_after: Annotated[int, Field(ge=0, le=31_536_000)] = 3_600
    """Seconds that something outside may be away, such as Kafka or space on the disk; then the job or transport ends with exit code 3."""
    stalled_after: Annotated[int, Field(ge=10, le=31_536_000)] = 900
    """Seconds without any progress of a batch's tasks after which the batch is ended and begun again; longer than any block may take."""
    blocks_ahead_max: Positive = core_limits.BLOCKS_AHEAD_MAX_DEFAULT
    """How many blocks a record may be ahead of its lane's last executed one; beyond it the job stops with an error."""
    waiting_bytes_max: Positive = core_limits.WAITING_BYTES_MAX_DEFAULT
    """Maximum bytes of waiting raw records per lane; beyond it the job stops with an error."""
    duplicate_window_blocks: U32 = core_limits.DUPLICATE_WINDOW_BLOCKS_DEFAULT
    """Executed blocks in which a redelivered record is recognised as a duplicate; before them it is late."""
    handler_seconds_max: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Seconds that a handler may take for one upward message; beyond it the job stops with an error."""
    headroom_interval_blocks: U32 = core_limits.HEADROOM_INTERVAL_BLOCKS_DEFAULT
    """Blocks between two emissions of headroom; 0 means at session changes only."""
    root_interval_blocks: U32 = core_limits.ROOT_INTERVAL_BLOCKS_DEFAULT
    """Blocks between two state roots; 0 means at session changes only."""

    @field_validator("directory")
    @classmethod
    def _check_directory(cls, value: str) -> str:
        if "://" in value:
            raise ValueError(f"expected a path that the driver and every executor reach, found the URI {value!r}")
        return value


class DeadLetters(_Table):
    """`[dead_letters]`: what `validator dead-letters replay` may do."""

    attempts_max: Annotated[int, Field(ge=1, le=1_000_000)] = 3
    """Maximum number of times that a record is put back, over all the dead letters that it became."""


class Plugins(_Table):
    """`[plugins]`: which plugins may run, and how they reach Spark's workers."""

    lock: Annotated[str, Field(min_length=1)] | None = None
    """Lock file written by `validator plugins lock`, relative to this file; with it, only the plugins that it names may run."""
    artefacts: list[Annotated[str, Field(pattern=r"\.zip$")]] = Field(default_factory=list)
    """Files made by `validator plugins pack`, relative to this file; every process, workers included, imports their plugins from them."""

    @field_validator("artefacts")
    @classmethod
    def _check_artefacts(cls, value: list[str]) -> list[str]:
        seen: set[str] = set()
        for artefact in value:
            if (name := Path(artefact).name) in seen:
                raise ValueError(f"{name} is listed twice")
            seen.add(name)
        return value


class Metrics(_Table):
    """`[metrics]`: what Prometheus can read of the job and of transports. Without an address nothing is measured or served."""

    listen: Annotated[str, AfterValidator(_check_address)] | None = None
    """Address of the job's endpoint, which also has the metrics of workers and transports: HOST:PORT; port 0 takes any free one."""
    transports: dict[PluginName, Annotated[str, AfterValidator(_check_address)]] = Field(default_factory=dict)
    """Addresses of transports that serve their own metrics in addition, by the transport's name."""
    paras: list[U32] = Field(default_factory=list)
    """Paras that have separate series, with all their channels; without any, all paras have."""
    paras_max: Annotated[int, Field(ge=0, le=SUBJECTS_MAX)] = PARAS_MAX_DEFAULT
    """Maximum number of paras of a lane that have series; those with the lowest ids."""
    channels_max: Annotated[int, Field(ge=0, le=SUBJECTS_MAX)] = CHANNELS_MAX_DEFAULT
    """Maximum number of channels of a lane that have series."""


class Audit(_Table):
    """`[audit]`: which blocks the job checks once it has executed them."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of all blocks, to the millionth; 0 checks none."""
    on_fault: Literal["report", "park"] = "report"
    """Whether a fault is reported only, or also parks the lane before its block emits anything."""


class GenesisPara(_Table):
    """`[[chains.<lane>.genesis_paras]]`: a para that is valid from the start."""

    para_id: U32
    kind: Literal["parachain", "parathread"] = "parachain"
    balance: U128 = 0
    """Free balance of the para's account, in the smallest unit of the token."""


class HandlerTable(_Table):
    """`[[chains.<lane>.handlers]]`: a plugin that handles upward messages, from a block until the next entry of the same name."""

    name: PluginName
    """The plugin's name: the name of its entry point in group `validator.handlers`."""
    version: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """The plugin's version; required if several are installed."""
    from_block: U32 = 0
    """The first block whose dispatch round uses the plugin."""
    removed: bool = False
    """Whether the plugin handles no messages from that block on."""
    config: PluginConfig = Field(default_factory=dict)
    """The plugin's own configuration."""

    @model_validator(mode="after")
    def _check_removed(self) -> HandlerTable:
        if self.removed and (self.version is not None or self.config):
            raise ValueError("expected neither version nor config for a removed handler")
        return self


class RulesTable(_Table):
    """`[[chains.<lane>.rules]]`: the protocol's rules from a block on, by the name of a profile or as a list of features.

    The protocol checks the list as a whole (`validator.plugin.rule_choice`).
    """

    from_block: U32
    """The first block under these rules."""
    profile: str | None = None
    """A profile of the protocol; `validator rules list` shows all."""
    features: list[str] | None = None
    """Features of the protocol, in any order."""


class Chain(_Table):
    """`[chains.<lane>]`: one relay chain.

    Its limits are in a table whose name the protocol defines (`validator.plugin.protocol_parts.LimitsTable`), by default ``limits``.
    """

    model_config = ConfigDict(extra="allow")

    protocol: PluginName = DEFAULT_PROTOCOL
    """The rule set: the name of a plugin of group `validator.protocols`."""
    enactment: Literal["immediate", "on-inclusion"] = "immediate"
    """Whether an accepted candidate takes effect at once, or in the block that lists it as included."""
    balances: Literal["ledger", "unlimited"] = "ledger"
    """Whether deposits need free balance; ``unlimited`` only tracks what is reserved."""
    hrmp_notifications: bool = False
    """Whether a channel request that succeeds also queues a downward message for the other party (router_rules I-11)."""
    first_block: Annotated[int, Field(ge=1, le=core_limits.U32_MAX)] = 1
    """The first block to execute; its parent counts as executed."""
    state: str | None = None
    """A STATE.json to start from at a later block, made by `validator lanes import`; relative to this file. It excludes genesis_paras."""
    limits: dict[str, Any] = Field(default_factory=dict)
    """Limits of a protocol that has no other table for them, by its own names; a missing one is the protocol's default."""
    genesis_paras: list[GenesisPara] = Field(default_factory=list)
    ump_default_weight: U63 = 1
    """Weight of an upward message that ump_weights does not list."""
    ump_weights: dict[str, U63] = Field(default_factory=dict)
    """Weight by payload in hex."""
    ump_failing_messages: list[str] = Field(default_factory=list)
    """Payloads in hex whose dispatch fails: for test chains."""
    ump_message_weight_max: U63 | None = None
    """Weight that a handler may use for one upward message; by default the weight of a whole dispatch round."""
    handlers: list[HandlerTable] | None = None
    """Handlers of upward messages; without them messages are only weighed, by the keys above."""
    rules: list[RulesTable] = Field(default_factory=list)
    """The protocol's rules by height, ascending by block; before the first entry its default ones hold."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_limits(cls, value: Any, handler: ModelWrapValidatorHandler[Chain]) -> Chain:
        """Check the limits as the protocol wants them, and report their errors together with all others."""
        errors: list[InitErrorDetails] = []
        chain: Chain | None = None
        try:
            chain = handler(value)
        except ValidationError as error:
            errors += map(as_input, error.errors(include_url=False))
        if isinstance(value, dict):
            errors += limit_errors(value, cls.model_fields, DEFAULT_PROTOCOL)
        if chain is None or errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return chain

    @field_validator("genesis_paras")
    @classmethod
    def _check_paras(cls, value: list[GenesisPara]) -> list[GenesisPara]:
        seen: set[int] = set()
        for para in value:
            if para.para_id in seen:
                raise ValueError(f"para {para.para_id} is listed twice")
            seen.add(para.para_id)
        return value

    @field_validator("ump_weights")
    @classmethod
    def _check_weights(cls, value: dict[str, int]) -> dict[str, int]:
        payloads: set[bytes] = set()
        for payload in value:
            try:
                decoded = from_hex(payload.lower())
            except ValueError:
                raise ValueError(f"expected payloads in hex as keys, found {payload!r}") from None
            if decoded in payloads:
                raise ValueError(f"payload {decoded.hex()} is listed twice")
            payloads.add(decoded)
        return value

    @field_validator("ump_failing_messages")
    @classmethod
    def _check_failing(cls, value: list[str]) -> list[str]:
        for payload in value:
            try:
                from_hex(payload.lower())
            except ValueError:
                raise ValueError(f"expected payloads in hex, found {payload!r}") from None
        return value

    @model_validator(mode="after")
    def _check_start(self) -> Chain:
        if self.state is not None and self.genesis_paras:
            raise ValueError("expected state or genesis_paras, found both: a state says which paras are valid")
        if self.handlers is not None and (self.ump_weights or self.ump_failing_messages):
            raise ValueError("expected handlers, or ump_weights and ump_failing_messages, found both")
        return self

    def limit_tables(self) -> dict[str, Any]:
        """Return the tables that may hold the chain's limits, as written in the file."""
        return {**(self.model_extra or {}), "limits": self.limits}

    def core_enactment(self) -> Enactment:
        """Return the enactment as the core names it."""
        return Enactment(self.enactment)

    def core_balances(self) -> Balances:
        """Return the kind of balances as the core names it."""
        return Balances(self.balances)

    def core_paras(self) -> tuple[Para, ...]:
        """Return the genesis paras, by ascending id."""
        paras = (Para(para.para_id, ParaKind(para.kind), para.balance) for para in self.genesis_paras)
        return tuple(sorted(paras, key=lambda para: para.para_id))

    def core_ump_weights(self) -> dict[bytes, int]:
        """Return the weights by payload."""
        return {from_hex(payload.lower()): weight for payload, weight in self.ump_weights.items()}


class Config(BaseSettings):
    """The contents of `validator.toml`, overridden by the environment.

    ``VALIDATOR_<table>__<key>`` overrides a key (``VALIDATOR_JOB__MASTER=local[2]``). A value is parsed as JSON if it is JSON, else taken
    as text (a value for librdkafka is always text).
    """

    model_config = SettingsConfigDict(
        extra="forbid", strict=True, frozen=True, env_prefix="VALIDATOR_", env_nested_delimiter="__"
    )

    topics: Topics = Field(default_factory=Topics)
    kafka: dict[str, Any] = Field(default_factory=dict)
    """librdkafka's options by their own names, passed through; without ``bootstrap.servers`` the embedded broker is used."""
    job: Job = Field(default_factory=Job)
    dead_letters: DeadLetters = Field(default_factory=DeadLetters)
    metrics: Metrics = Field(default_factory=Metrics)
    schema_registry: Annotated[SchemaRegistry, Field(default_factory=SchemaRegistry, validate_default=True)]
    audit: Audit = Field(default_factory=Audit)
    plugins: Plugins = Field(default_factory=Plugins)
    chains: dict[LaneName, Chain] = Field(default_factory=dict)
    transports: dict[PluginName, PluginConfig] = Field(default_factory=dict)
    """`[transports.<name>]`: the configuration of a plugin of group `validator.transports`, by its own keys."""
    jobs: dict[PluginName, PluginConfig] = Field(default_factory=dict)
    """`[jobs.<name>]`: the configuration of a plugin of group `validator.jobs`, by its own keys."""

    @field_validator("kafka", mode="before")
    @classmethod
    def _flatten_kafka(cls, value: object) -> object:
        return dotted(value) if isinstance(value, dict) else value

    @field_validator("schema_registry")
    @classmethod
    def _add_registry(cls, value: SchemaRegistry, info: ValidationInfo) -> SchemaRegistry:
        """Let whoever reads records with the table `kafka` know the schema registry."""
        kafka, keys = info.data.get("kafka", {}), value.client_keys()
        for name in kafka:
            if name.startswith(REGISTRY_PREFIX) and name not in keys:
                raise ValueError(f"[kafka] {name} cannot be set: expected its key in this table")
        kafka.update(keys)
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - it reads nested tables differently
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment override the file, whose values come in as arguments."""
        return EnvironmentSource(settings_cls), init_settings
