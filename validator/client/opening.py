# SPDX-License-Identifier: Apache-2.0
"""Makes clients: of the Kafka that a configuration names, or of lanes in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from validator.client.backend import KafkaBackend, MemoryBackend
from validator.client.facade import Client
from validator.config import Config, load_config
from validator.config.explain import explain
from validator.config.load import names_at
from validator.errors import UserError
from validator.lanes.configured import configured_codec, lane_definition
from validator.plugin.pack import use_artefacts
from validator.resources import state_directory

Configuration: TypeAlias = str | Path | Mapping[str, Any] | Config | None
"""A configuration file, its tables, or None for ``./validator.toml``."""


def connect(configuration: Configuration = None) -> Client:
    """Return a client of the configured Kafka, or of the embedded broker if none is configured; it must be running.

    Raises `UserError`: the configuration is wrong, no broker runs.
    """
    config = _config(configuration)
    kafka = config.kafka
    if not kafka.get("bootstrap.servers"):
        from validator.kafka.broker import (
            EmbeddedBroker,  # it can also start Java; here it reads the address and the login
        )

        kafka = {**kafka, **EmbeddedBroker(state_directory() / "broker").kafka}
    return Client(KafkaBackend(kafka, config.topics.prefix), config)


def in_memory(configuration: Configuration = None) -> Client:
    """Return a client whose lanes run in this process, from their first blocks, with the rules that the job would apply.

    A block is executed when it ends, and its records are there at once; nothing is kept. Raises `UserError`: the configuration is wrong, or
    has no chain.
    """
    config = _config(configuration)
    if not config.chains:
        raise UserError("no chain is configured: expected a table [chains.<lane>]")
    definitions = {lane: lane_definition(config, lane) for lane in sorted(config.chains)}
    return Client(MemoryBackend(definitions, configured_codec(config)), config)


def _config(configuration: Configuration) -> Config:
    if isinstance(configuration, Config):
        config = configuration
    elif isinstance(configuration, Mapping):
        try:
            config = Config.model_validate(dict(configuration))
        except ValidationError as error:
            raise UserError(explain(error.errors(include_url=False)[0], names_at)) from None
    else:
        config = load_config(configuration)
    use_artefacts(config.plugins.artefacts)
    return config
