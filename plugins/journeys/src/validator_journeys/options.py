# SPDX-License-Identifier: Apache-2.0
"""The numbers in the tables of this plugin's jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validator.plugin.job_api import JobContext, UserError


def numbers(
    context: JobContext, options: Mapping[str, Any], ranges: Mapping[str, tuple[int, int]], *others: str
) -> dict[str, int]:
    """Return the options. Raises `UserError` that names a key which is none, what was expected and what was found."""
    where = f"[jobs.{context.name}]"
    for key, value in options.items():
        if key not in ranges:
            raise UserError(f"{where} {key}: no such key; there are {', '.join((*others, *ranges))}")
        least, most = ranges[key]
        if type(value) is not int or not least <= value <= most:
            raise UserError(f"{where} {key}: expected {least} to {most}, found {value!r}")
    return dict(options)
