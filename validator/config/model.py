# SPDX-License-Identifier: Apache-2.0
"""Every key of `validator.toml`, with its unit, default and meaning; those of chains in `chain`. `examples/validator.toml` has them all."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from validator.config.chain import Chain
from validator.config.table import (
    ARTEFACT_PATTERN,
    MEMORY_PATTERN,
    PREFIX_PATTERN,
    U32,
    FilePath,
    LaneName,
    PluginConfig,
    PluginName,
    Positive,
    Table,
)
from validator.core import limits as core_limits
from validator.metrics.address import parse_address
from validator.metrics.limits import CHANNELS_MAX_DEFAULT, PARAS_MAX_DEFAULT, SUBJECTS_MAX
from validator.registry_keys import REGISTRY_PREFIX
from validator.tables import dotted
from validator.topics import TOPICS

_URL: Final = re.compile(
    r"https?://(\[[0-9A-Fa-f:.]+\]|[^@?#\s,:/\[\]\x00-\x1f]+)(:(?P<port>[0-9]{1,5}))?(/[^@?#\s,\x00-\x1f]*)?"
)
_URLS_EXPECTED: Final = "expected addresses that begin with http:// or https://, separated by commas"


class SchemaRegistry(BaseModel):
    """`[schema_registry]`: a registry with Confluent's REST interface, whose ids may stand in front of records instead of fingerprints."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    url: str | None = None
    """Its address, http or https; several with commas. Without it only the plain form of records is read."""
    user: str | None = None
    """Name of a login (HTTP basic)."""
    password: str | None = None
    ca_file: FilePath | None = None
    """PEM file of the authorities that may have signed the registry's certificate; by default those that the client ships."""
    certificate_file: FilePath | None = None
    """PEM file of a client certificate, with its key unless key_file names it."""
    key_file: FilePath | None = None
    key_password: str | None = None
    subjects: Literal["topic-record", "record"] = "topic-record"
    """Names of subjects: topic and record (TopicRecordNameStrategy), or the record alone (RecordNameStrategy)."""
    write: Literal["plain", "confluent"] = "plain"
    """Form of the records that jobs emit."""

    # Values below may be secrets, or a person may have put one there: errors do not repeat them.

    @field_validator("user", "password", "key_password", mode="before")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, str):
            raise ValueError("expected text, found another type of value")
        return value

    @field_validator("user")
    @classmethod
    def _check_user(cls, value: str | None) -> str | None:
        if value is not None and (not value or ":" in value):
            raise ValueError(f"expected a name without a colon, found {'one with it' if value else 'nothing'}")
        return value

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        """Refuse what an address may contain besides host, port and path: error messages show the address."""
        if value is None or all(_is_address(each.strip()) for each in value.split(",")):
            return value
        if "@" in value:
            raise ValueError(f"{_URLS_EXPECTED}, found a user there: set user and password")
        if "?" in value or "#" in value:
            raise ValueError(f"{_URLS_EXPECTED}, found a query or a fragment there")
        raise ValueError(f"{_URLS_EXPECTED}, found {value[:60]!r}")

    @model_validator(mode="after")
    def _check_together(self) -> SchemaRegistry:
        fields = type(self).model_fields.items()
        given = [name for name, field in fields if name != "url" and getattr(self, name) != field.default]
        if self.url is None and given:
            raise ValueError(f"{given[0]} needs url")
        if (self.user is None) != (self.password is None):
            raise ValueError("expected user and password, found one of them")
        if self.certificate_file is None and (self.key_file or self.key_password) is not None:
            raise ValueError("key_file and key_password need certificate_file")
        return self

    def client_keys(self) -> dict[str, str]:
        """Return the settings of the registry's client by its own names, with the prefix that they have in a table of Kafka's."""
        named = {
            "url": self.url,
            "basic.auth.user.info": None if self.user is None else f"{self.user}:{self.password}",
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.key_file,
            "ssl.key.password": self.key_password,
        }
        return {f"{REGISTRY_PREFIX}{name}": value for name, value in named.items() if value is not None}


def _is_address(text: str) -> bool:
    found = _URL.fullmatch(text)
    return found is not None and 0 < int(found["port"] or 1) < 1 << 16


TOPIC_NAMES: Final = tuple(topic.name for topic in TOPICS)
COMPACTED_TOPICS: Final = tuple(topic.name for topic in TOPICS if topic.cleanup == "compact")

Retention = Annotated[int, Field(ge=-1, le=2**63 - 1)]
Partitions = Annotated[int, Field(ge=1, le=10_000)]


def _check_address(value: str) -> str:
    parse_address(value)
    return value


class Topics(Table):
    """`[topics]`: names and shape of the Kafka topics."""

    prefix: Annotated[str, Field(pattern=PREFIX_PATTERN)] = "validator."
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


DRIVER_MIB_MIN = 512
"""MiB of heap without which Spark does not start."""

WORKER_MIB_MIN = 256
"""MiB without which a Python worker cannot execute a lane: it needs some 150 for itself."""

_URI = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
"""What a place has that Hadoop names by a scheme."""

_MASTER = (
    r"local|local\[([1-9][0-9]*|\*)(,[1-9][0-9]*)?\]|local-cluster\[ *[1-9][0-9]* *, *[1-9][0-9]* *, *[1-9][0-9]* *\]"
    r"|spark://.+|k8s://.+|yarn"
)


class Job(Table):
    """`[job]`: how the Spark job runs and what a lane may hold."""

    directory: str = ""
    """Folder of checkpoint, lane state and logs; driver and executors reach it by the same path. Empty means below the state directory."""
    master: Annotated[str, Field(min_length=1)] = "local[*]"
    """Spark master URL."""
    state_partitions: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Partitions of the lane operator, each a worker at a time: for several chains one per core, on a cluster one or two per executor."""
    driver_memory: Annotated[str, Field(pattern=MEMORY_PATTERN)] = "2g"
    """Heap of the driver (and, in local mode, of everything but Python), in Spark's notation: 512m, 2g."""
    worker_memory: Annotated[str, Field(pattern=MEMORY_PATTERN)] = "4g"
    """Memory that a Python worker executing lanes may allocate: 512m, 4g; beyond it its lane is parked."""
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
    """How many blocks a record may be ahead of its lane's last executed one; beyond it the lane is parked."""
    waiting_bytes_max: Positive = core_limits.WAITING_BYTES_MAX_DEFAULT
    """Maximum bytes of waiting raw records per lane; beyond it the lane is parked."""
    duplicate_window_blocks: U32 = core_limits.DUPLICATE_WINDOW_BLOCKS_DEFAULT
    """Executed blocks in which a redelivered record is recognised as a duplicate; before them it is late."""
    handler_seconds_max: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Seconds that a handler may take for one upward message; beyond it the lane is parked."""
    headroom_interval_blocks: U32 | None = None
    """Blocks between two emissions of headroom; 0 means at session changes only, None that `Chain.headroom_interval` decides."""
    root_interval_blocks: U32 = core_limits.ROOT_INTERVAL_BLOCKS_DEFAULT
    """Blocks between two state roots; 0 means at session changes only."""

    @field_validator("master")
    @classmethod
    def _check_master(cls, value: str) -> str:
        if re.fullmatch(_MASTER, value) is None:
            raise ValueError(
                "expected local, local[N], local[*], local-cluster[EXECUTORS,CORES,MIB], spark://HOST:PORT, k8s://URL or yarn, "
                f"found {value[:60]!r}"
            )
        return value

    @field_validator("driver_memory", "worker_memory")
    @classmethod
    def _check_memory(cls, value: str, info: ValidationInfo) -> str:
        least = DRIVER_MIB_MIN if info.field_name == "driver_memory" else WORKER_MIB_MIN
        if int(value[:-1]) * (1024 if value[-1] == "g" else 1) < least:
            raise ValueError(f"expected at least {least}m, found {value!r}")
        return value

    @field_validator("directory")
    @classmethod
    def _check_directory(cls, value: str) -> str:
        if _URI.match(value):
            raise ValueError(
                f"expected a path that the driver and every executor reach, found the URI {value[:60]!r}: the job locks, renames and reads "
                "files there itself, so it needs a file system: mount one, such as NFS, CephFS or a volume with ReadWriteMany"
            )
        if "\0" in value:
            raise ValueError(f"expected a path, found {value[:60]!r}")
        return value


class DeadLetters(Table):
    """`[dead_letters]`: what `validator dead-letters replay` may do."""

    attempts_max: Annotated[int, Field(ge=1, le=1_000_000)] = 3
    """Maximum number of times that a record is put back, over all the dead letters that it became."""


ONE_DISTRIBUTION: Final = (
    "{one} and {other} hold one distribution, of which a process imports only one version: give the new version a separate "
    "distribution and module (docs/deploy-a-handler.md, Upgrading a handler)"
)
"""Why two artefacts cannot be used together."""


class Plugins(Table):
    """`[plugins]`: which plugins may run, and how they reach Spark's workers."""

    lock: FilePath | None = None
    """Lock file written by `validator plugins lock`, relative to this file; with it, only the plugins that it names may run."""
    artefacts: list[Annotated[FilePath, Field(pattern=ARTEFACT_PATTERN)]] = Field(default_factory=list)
    """Files made by `validator plugins pack`, relative to this file; every process, workers included, imports their plugins from them."""

    @field_validator("artefacts")
    @classmethod
    def _check_artefacts(cls, value: list[str]) -> list[str]:
        seen: dict[str, str] = {}
        for artefact in value:
            name = Path(artefact).name
            if name in seen.values():
                raise ValueError(f"{name} is listed twice")
            if (other := seen.setdefault(name.rsplit("-", 2)[0], name)) != name:
                raise ValueError(ONE_DISTRIBUTION.format(one=other, other=name))
        return value


class Metrics(Table):
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


class Audit(Table):
    """`[audit]`: which blocks the job checks once it has executed them."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of all blocks, to the millionth; 0 checks none."""
    on_fault: Literal["report", "park"] = "report"
    """Whether a fault is reported only, or also parks the lane before its block emits anything."""


class Config(Table):
    """The contents of `validator.toml`, whose keys the environment may override (`environment`)."""

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
