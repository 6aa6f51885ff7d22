# SPDX-License-Identifier: Apache-2.0
"""What the tables of `validator.toml` share: their form, and the kinds of their values."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from validator.core import limits as core_limits
from validator.core.handlers.handler import KIND

DEFAULT_PROTOCOL: Final = "router"
"""Protocol of a chain that names none: a plugin of group `validator.protocols`."""

LANE_PATTERN: Final = rf"^[a-z0-9][a-z0-9._-]{{0,{core_limits.LANE_NAME_LENGTH_MAX - 1}}}$"
"""Names of lanes, which are Kafka keys and parts of file names."""

PLUGIN_PATTERN: Final = rf"^{KIND.pattern}$"
MEMORY_PATTERN: Final = r"^[1-9][0-9]*[mg]$"
PREFIX_PATTERN: Final = r"^[A-Za-z0-9._-]{0,100}$"
ARTEFACT_PATTERN: Final = r"\.zip$"

PluginName = Annotated[str, Field(pattern=PLUGIN_PATTERN)]
LaneName = Annotated[str, Field(pattern=LANE_PATTERN)]
U32 = Annotated[int, Field(ge=0, le=core_limits.U32_MAX)]
U63 = Annotated[int, Field(ge=0, le=2**63 - 1)]
U128 = Annotated[int, Field(ge=0, le=core_limits.U128_MAX)]
Positive = Annotated[int, Field(ge=1, le=2**63 - 1)]


def _check_path(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError(f"expected a path, found {value[:60]!r}")
    return value


FilePath = Annotated[str, AfterValidator(_check_path)]
"""A path; whether it exists is seen when it is used."""


def _check_plain(values: dict[str, Any]) -> dict[str, Any]:
    """Reject values that JSON cannot hold: plugins get their configuration as JSON."""
    try:
        json.dumps(values, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError(
            "expected text, numbers, booleans, lists and tables, found a date, a time, nan or inf"
        ) from None
    return values


PluginConfig = Annotated[dict[str, Any], AfterValidator(_check_plain)]
"""A plugin's own configuration; the plugin defines its keys."""


class Table(BaseModel):
    """A table with known keys only."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
