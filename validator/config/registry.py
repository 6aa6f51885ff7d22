# SPDX-License-Identifier: Apache-2.0
"""The table `[schema_registry]` of `validator.toml`."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from validator.config.table import FilePath
from validator.registry_keys import REGISTRY_PREFIX

_URL: Final = re.compile(
    r"https?://(\[[0-9A-Fa-f:.]+\]|[^@?#\s,:/\[\]\x00-\x1f]+)(:(?P<port>[0-9]{1,5}))?(/[^@?#\s,\x00-\x1f]*)?"
)
_URLS_EXPECTED: Final = "expected addresses that begin with http:// or https://, separated by commas"


class SchemaRegistry(BaseModel):
    """`[schema_registry]`: a registry with Confluent's REST interface, whose ids may stand in front of records instead of fingerprints."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    url: str | None = None
    """Its address, http or https; several with commas. Without it only the plain form of records is read."""
    user: str | None = None
    """Name of a login (HTTP basic)."""
    password: str | None = None
    ca_file: FilePath | None = None
    """PEM file of the authorities that may have signed the registry's certificate; by default those that the client ships."""
    certificate_file: FilePath | None = None
    """PEM file of a client certificate, with its key unless key_file names it."""
    key_file: FilePath | None = None
    key_password: str | None = None
    subjects: Literal["topic-record", "record"] = "topic-record"
    """Names of subjects: topic and record (TopicRecordNameStrategy), or the record alone (RecordNameStrategy)."""
    write: Literal["plain", "confluent"] = "plain"
    """Form of the records that jobs emit."""

    # Values below may be secrets, or a person may have put one there: errors do not repeat them.

    @field_validator("user", "password", "key_password", mode="before")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        if value is not None and not isinstance(value, str):
            raise ValueError("expected text, found another type of value")
        return value

    @field_validator("user")
    @classmethod
    def _check_user(cls, value: str | None) -> str | None:
        if value is not None and (not value or ":" in value):
            raise ValueError(f"expected a name without a colon, found {'one with it' if value else 'nothing'}")
        return value

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        """Refuse what an address may contain besides host, port and path: error messages show the address."""
        if value is None or all(_is_address(each.strip()) for each in value.split(",")):
            return value
        if "@" in value:
            raise ValueError(f"{_URLS_EXPECTED}, found a user there: set user and password")
        if "?" in value or "#" in value:
            raise ValueError(f"{_URLS_EXPECTED}, found a query or a fragment there")
        raise ValueError(f"{_URLS_EXPECTED}, found {value[:60]!r}")

    @model_validator(mode="after")
    def _check_together(self) -> SchemaRegistry:
        fields = type(self).model_fields.items()
        given = [name for name, field in fields if name != "url" and getattr(self, name) != field.default]
        if self.url is None and given:
            raise ValueError(f"{given[0]} needs url")
        if (self.user is None) != (self.password is None):
            raise ValueError("expected user and password, found one of them")
        if self.certificate_file is None and (self.key_file or self.key_password) is not None:
            raise ValueError("key_file and key_password need certificate_file")
        return self

    def client_keys(self) -> dict[str, str]:
        """Return the settings of the registry's client by its own names, with the prefix that they have in a table of Kafka's."""
        named = {
            "url": self.url,
            "basic.auth.user.info": None if self.user is None else f"{self.user}:{self.password}",
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.key_file,
            "ssl.key.password": self.key_password,
        }
        return {f"{REGISTRY_PREFIX}{name}": value for name, value in named.items() if value is not None}


def _is_address(text: str) -> bool:
    found = _URL.fullmatch(text)
    return found is not None and 0 < int(found["port"] or 1) < 1 << 16
