# SPDX-License-Identifier: Apache-2.0
"""Configuration keys in environment variables."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from pydantic_settings import PydanticBaseSettingsSource

from validator.tables import dotted

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

PREFIX: Final = "VALIDATOR_"
DELIMITER: Final = "__"


class EnvironmentSource(PydanticBaseSettingsSource):
    """``VALIDATOR_<table>__<key>=<value>``, likewise for nested tables; a variable named after a whole table takes JSON.

    pydantic-settings' own source drops unknown names. This one passes them on, so that a typing error in a variable is reported like one in
    the file. A variable with the prefix but neither a table's name nor ``__`` is not a configuration key. In Kafka's dotted keys, ``__``
    stands for the dot: ``VALIDATOR_KAFKA__BOOTSTRAP__SERVERS``.
    """

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Not used: `__call__` reads all fields at once."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the nested tables that the environment sets."""
        found: dict[str, Any] = {}
        for variable in sorted(os.environ):
            if not variable.upper().startswith(PREFIX):
                continue
            path = variable[len(PREFIX) :].lower().split(DELIMITER)
            if len(path) == 1 and path[0] not in self.settings_cls.model_fields:
                continue
            value = _value(os.environ[variable])
            if path == ["kafka"] and isinstance(value, dict):
                value = dotted(value)
            elif path[0] == "kafka":
                # librdkafka takes text, and a password may look like a number
                path, value = ["kafka", ".".join(path[1:])], os.environ[variable]
            elif path[0] == "schema_registry" and len(path) > 1:
                value = os.environ[variable]  # all its values are text
            table = found
            for name in path[:-1]:
                below = table.setdefault(name, {})
                table[name] = table = below if isinstance(below, dict) else {}
            table[path[-1]] = value
        return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
