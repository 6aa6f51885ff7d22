# SPDX-License-Identifier: Apache-2.0
"""`validator.toml`: its keys (`model`, and `limits` of chains), and reading and checking it (`load`)."""

from validator.config.load import load_config
from validator.config.model import (
    DEFAULT_PROTOCOL,
    Chain,
    Config,
    Job,
    Topics,
    configuration_digest,
    configuration_meaning,
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
