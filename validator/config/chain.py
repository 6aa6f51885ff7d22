# SPDX-License-Identifier: Apache-2.0
"""`[chains.<lane>]` of `validator.toml`: every key of a relay chain but its limits, with unit, default and meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails

from validator.config.explain import as_input
from validator.config.limits import limit_errors
from validator.config.table import DEFAULT_PROTOCOL, U32, U63, U128, FilePath, PluginConfig, PluginName, Table
from validator.core import limits as core_limits
from validator.core.types import Para, ParaKind
from validator.hexadecimal import from_hex


class GenesisPara(Table):
    """`[[chains.<lane>.genesis_paras]]`: a para that is valid from the start."""

    para_id: U32
    kind: Literal["parachain", "parathread"] = "parachain"
    balance: U128 = 0
    """Free balance of the para's account, in the smallest unit of the token."""


class HandlerTable(Table):
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


class RulesTable(Table):
    """`[[chains.<lane>.rules]]`: the protocol's rules from a block on, by the name of a profile or as a list of features.

    The protocol checks the list as a whole (`validator.plugin.rule_choice`).
    """

    from_block: U32
    """The first block under these rules."""
    profile: str | None = None
    """A profile of the protocol; `validator rules list` shows all."""
    features: list[str] | None = None
    """Features of the protocol, in any order."""


class Chain(Table):
    """`[chains.<lane>]`: one relay chain.

    Its limits are in a table whose name the protocol defines (`validator.plugin.protocol_api.LimitsTable`), by default ``limits``.
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
    state: FilePath | None = None
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
    """Handlers of upward messages; a message that no handler takes is only weighed, by the keys above."""
    names: dict[str, str] = Field(default_factory=dict)
    """Names of paras for the console, by para id; those of Polkadot, Kusama and Paseo are known."""
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

    @field_validator("names")
    @classmethod
    def _check_names(cls, value: dict[str, str]) -> dict[str, str]:
        for para in value:
            if not (para.isascii() and para.isdecimal() and int(para) <= core_limits.U32_MAX):
                raise ValueError(f"expected para ids as keys, found {para!r}")
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
        return self

    def limit_tables(self) -> dict[str, Any]:
        """Return the tables that may hold the chain's limits, as written in the file."""
        return {**(self.model_extra or {}), "limits": self.limits}

    def headroom_interval(self) -> int:
        """Return by default how many blocks are between two emissions of headroom: few paras cost little with every block."""
        small = self.state is None and len(self.genesis_paras) <= core_limits.HEADROOM_EACH_BLOCK_PARAS_MAX
        return 1 if small else core_limits.HEADROOM_INTERVAL_BLOCKS_DEFAULT

    def core_paras(self) -> tuple[Para, ...]:
        """Return the genesis paras, by ascending id."""
        paras = (Para(para.para_id, ParaKind(para.kind), para.balance) for para in self.genesis_paras)
        return tuple(sorted(paras, key=lambda para: para.para_id))

    def core_ump_weights(self) -> dict[bytes, int]:
        """Return the weights by payload."""
        return {from_hex(payload.lower()): weight for payload, weight in self.ump_weights.items()}
