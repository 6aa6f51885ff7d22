# SPDX-License-Identifier: Apache-2.0
"""`validator.toml`: its keys (`model`, `chain`, and `limits` of chains), what they mean (`meaning`), and reading it (`load`)."""

from validator.config.chain import Chain
from validator.config.load import load_config
from validator.config.meaning import configuration_digest, configuration_meaning
from validator.config.model import Config, Job, Topics
from validator.config.table import DEFAULT_PROTOCOL

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
