# SPDX-License-Identifier: Apache-2.0
"""A chain's limits in `validator.toml`: the chain's protocol defines the table that holds them, and its keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import InitErrorDetails, PydanticCustomError

from validator.config.explain import UNKNOWN_KEY, as_input, explain
from validator.errors import UserError
from validator.plugin.protocol_api import LIMITS, LimitsTable


class Found(NamedTuple):
    """Whether a protocol is installed here, and how the file holds its limits: None if the protocol's definition reads them."""

    installed: bool
    table: LimitsTable | None = None

    @property
    def key(self) -> str:
        """The table of ``[chains.<lane>]`` that holds the limits."""
        return LIMITS if self.table is None else self.table.key


def find_limits(protocol: str) -> Found:
    """Look up a protocol among the installed plugins; others may come with artefacts that are not in use yet."""
    from validator.plugin.runtime import RuntimePlan, make_runtime  # import the protocol's plugin

    try:
        definition = make_runtime(RuntimePlan(protocol)).protocol
    except UserError:  # the plugin's errors are reported when the lane is made, together with all others
        return Found(installed=False)
    return Found(installed=True, table=definition.limits_table)


def limit_errors(chain: Mapping[str, Any], own: Mapping[str, Any], default: str) -> list[InitErrorDetails]:
    """Return the errors of all keys in a chain's table that are not its ``own``: limits of its protocol, or unknown keys.

    ``default`` is the protocol of a chain that names none. If a protocol is not installed here, any table may hold its limits.
    """
    protocol = chain.get("protocol", default)
    if not isinstance(protocol, str):
        return []
    others = {name: value for name, value in chain.items() if name not in own}
    free = chain.get(LIMITS)
    if not others and not free:
        return []
    found = find_limits(protocol)
    table, key = found.table, found.key
    errors: list[InitErrorDetails] = []
    if free and key != LIMITS:
        text = f"{LIMITS}: expected {key}, which holds the limits of protocol {protocol}"
        errors.append(_error((), PydanticCustomError("value_error", "{text}", {"text": text}), free))
    for name, value in ({**others, LIMITS: free} if table is not None and key == LIMITS else others).items():
        if name == key and table is not None:
            errors += _errors_of_table(table, value)
        elif isinstance(value, dict) and (not found.installed or name == find_limits(default).key):
            if found.installed:
                text = f"expected {key}, which holds the limits of protocol {protocol}"
                errors.append(_error((name,), PydanticCustomError("value_error", "{text}", {"text": text}), value))
        else:
            errors.append(_error((name,), _unknown({*own, key}), value))
    return errors


def limits_by_table(protocol: str, given: Mapping[str, Any], default: str) -> dict[str, Any]:
    """Return, by table, all limits that a chain's configuration implies; ``given`` has those that it states, by table.

    Each chain has an entry for the default protocol's table (zeros if it is not the chain's) and one for `LIMITS`. The digest, which
    compares deployments, has always included both.
    """
    meant: dict[str, Any] = {LIMITS: {}}
    for name in dict.fromkeys((default, protocol)):
        table = find_limits(name).table
        if table is not None:
            meant[table.key] = table.resolve(given.get(table.key, {}) if name == protocol else {})
        elif name == protocol:
            meant[LIMITS] = given.get(LIMITS, {})
    return meant


def check_table(table: LimitsTable, values: object, chain: str) -> None:
    """Raise `UserError`, in one line, for the first error in a table of limits; ``chain`` is the path of the chain's table."""
    if errors := _errors_of_table(table, values):
        (first, *_) = ValidationError.from_exception_data(table.key, errors).errors(include_url=False)
        raise UserError(f"{chain}.{explain(first)}")


def _errors_of_table(table: LimitsTable, value: object) -> list[InitErrorDetails]:
    shape = _shape(table.key, tuple(table.maxima.items()), tuple(table.presets))
    try:
        shape.model_validate(value)
    except ValidationError as error:
        return [
            _error((table.key, *each["loc"]), _unknown(shape.model_fields), each["input"])
            if each["type"] == "extra_forbidden"
            else as_input(each, table.key)
            for each in error.errors(include_url=False)
        ]
    return []


@lru_cache(maxsize=64)
def _shape(key: str, maxima: tuple[tuple[str, int], ...], presets: tuple[str, ...]) -> type[BaseModel]:
    limits: dict[str, Any] = {
        name: (Annotated[int, Field(ge=0, le=greatest)] | None, None) for name, greatest in maxima
    }
    if presets:
        limits = {"preset": (Literal[presets] | None, None), **limits}
    return create_model(key, __config__=ConfigDict(extra="forbid", strict=True), **limits)


def _unknown(known: Any) -> PydanticCustomError:
    return PydanticCustomError(UNKNOWN_KEY, "no such key", {"known": sorted(known)})


def _error(place: tuple[int | str, ...], kind: PydanticCustomError, value: object) -> InitErrorDetails:
    return InitErrorDetails(type=kind, loc=place, input=value)
