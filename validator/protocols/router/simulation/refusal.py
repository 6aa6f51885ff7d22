# SPDX-License-Identifier: Apache-2.0
"""A request that breaks a rule, inside the naive model."""

from __future__ import annotations

from typing import Any

from validator.simulate import Json, failed


class Refused(Exception):
    """A broken rule, with the result that names it."""

    def __init__(self, kind: str, **fields: Any) -> None:
        super().__init__(kind)
        self.result: Json = failed(kind, **fields)
