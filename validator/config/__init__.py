# SPDX-License-Identifier: Apache-2.0
"""`validator.toml`: its keys (`model`, and `limits` of chains), what they mean (`meaning`), and reading and checking it (`load`)."""

from validator.config.load import load_config
from validator.config.meaning import configuration_digest, configuration_meaning
from validator.config.model import (
    DEFAULT_PROTOCOL,
    Chain,
    Config,
    Job,
    Topics,
)

__all__ = [
    "DEFAULT_PROTOCOL",
    "Chain",
    "Config",
    "Job",
    "Topics",
    "configuration_digest",
    "configuration_meaning",
    "load_config",
]
