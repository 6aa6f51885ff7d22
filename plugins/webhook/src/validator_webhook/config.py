# SPDX-License-Identifier: Apache-2.0
"""The table `[transports.webhook]`, and the definition of a subscription, which requests have in the same form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Literal

from pydantic import TypeAdapter, ValidationError

from validator.plugin.api import RecordFilter
from validator_webhook.addresses import Network, check_url, networks
from validator_webhook.limits import (
    ATTEMPT_S,
    ATTEMPT_S_MAX,
    PARK_AFTER_S,
    PARK_AFTER_S_MAX,
    SUBSCRIPTIONS_MAX,
    TEXT_CHARACTERS_MAX,
    TOPICS_MAX,
)

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
MADE: Final = "h-"
"""The names of subscriptions made over HTTP begin so."""
LISTEN: Final = "127.0.0.1:8481"

_TEXTS: Final = ("lane", "kind", "outcome", "error", "description")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a subscription wants, and where it goes. Filters work as in `validator watch` and the client library.

    Raises ``ValueError``: no topic or too many, a text that is not one short printable line.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid", "strict": False}
    url: str
    topics: tuple[str, ...]
    lane: str | None = None
    para: int | None = None
    sender: int | None = None
    recipient: int | None = None
    kind: str | None = None
    outcome: str | None = None
    rejected: bool = False
    error: str | None = None
    start: Literal["now", "beginning"] = "now"
    """Where it begins, once: behind the last record, or with the first one."""
    description: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(set(self.topics)) <= TOPICS_MAX:
            raise ValueError(f"topics: expected 1 to {TOPICS_MAX}, found {len(set(self.topics))}")
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None and not (0 < len(value) <= TEXT_CHARACTERS_MAX and value.isprintable()):
                raise ValueError(f"{name}: expected a line of 1 to {TEXT_CHARACTERS_MAX} printable characters")

    @property
    def wanted(self) -> RecordFilter:
        """Which records of the topics it wants."""
        return RecordFilter(
            lane=self.lane,
            para=self.para,
            sender=self.sender,
            recipient=self.recipient,
            kind=self.kind,
            outcome=self.outcome,
            rejected=self.rejected,
            error=self.error,
        )

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults."""
        found = {name: getattr(self, name) for name in _FIELDS}
        return {
            name: list(value) if name == "topics" else value
            for name, value in found.items()
            if value != _DEFAULTS.get(name)
        }


_FIELDS: Final = tuple(each.name for each in fields(Definition))
_DEFAULTS: Final = {each.name: each.default for each in fields(Definition)}
_ADAPTER: Final = TypeAdapter(Definition)


def parse_definition(values: object) -> Definition:
    """Return a definition given in JSON. Raises ``ValueError``: one line with the field, what was expected and what was found."""
    if not isinstance(values, Mapping):
        raise ValueError("expected a JSON object with url and topics")
    try:
        return _ADAPTER.validate_python(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        text = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place}: {text}" if place else text) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured(Definition):
    """A subscription of the configuration, with where its secret is."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}
    secret_file: str | None = None
    secret_env: str | None = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        if (self.secret_file is None) == (self.secret_env is None):
            raise ValueError("expected secret_file or secret_env, one of them")

    @property
    def definition(self) -> Definition:
        """The same without its secret's place."""
        return Definition(**{name: getattr(self, name) for name in _FIELDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The table `[transports.webhook]`.

    With a token it listens for requests that make, show, remove and resume subscriptions; the secrets of subscriptions made that way are
    derived from the secret. Raises ``ValueError``: networks, limits, then names and URLs of subscriptions.
    """

    subscriptions: dict[str, Configured] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()
    """Installed jobs whose topics may be subscribed to."""
    listen: str = LISTEN
    token_file: str | None = None
    token_env: str | None = None
    secret_file: str | None = None
    secret_env: str | None = None
    allow_networks: tuple[str, ...] = ()
    """Networks that receivers may be in although they are the machine's own."""
    allow_http: bool = False
    ca_file: str | None = None
    """Authorities of receivers' certificates, in place of the system's."""
    timeout_seconds: float = ATTEMPT_S
    park_after_seconds: float = PARK_AFTER_S

    def __post_init__(self) -> None:
        try:
            allowed = networks(self.allow_networks)
        except ValueError as error:
            raise ValueError(f"allow_networks: {error}") from None
        for name, value, most in (
            ("timeout_seconds", self.timeout_seconds, ATTEMPT_S_MAX),
            ("park_after_seconds", self.park_after_seconds, PARK_AFTER_S_MAX),
        ):
            if not 0 < value <= most:
                raise ValueError(f"{name}: expected more than 0 and at most {most:g}, found {value:g}")
        host, colon, port = self.listen.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdecimal() or int(port[:6]) > 65_535:
            raise ValueError(f"listen: expected HOST:PORT, such as {LISTEN}, found {self.listen!r}")
        for what in ("token", "secret"):
            if getattr(self, f"{what}_file") is not None and getattr(self, f"{what}_env") is not None:
                raise ValueError(f"expected {what}_file or {what}_env, found both")
        if self.listens and self.secret_file is None and self.secret_env is None:
            raise ValueError(
                "secret_file: expected the secret from which those of subscriptions made over HTTP are derived, found none"
            )
        if not self.listens and not self.subscriptions:
            raise ValueError(
                "expected a subscription in subscriptions, or token_file to make some over HTTP, found neither"
            )
        if len(self.subscriptions) > SUBSCRIPTIONS_MAX:
            raise ValueError(f"subscriptions: expected at most {SUBSCRIPTIONS_MAX}, found {len(self.subscriptions)}")
        for name, each in self.subscriptions.items():
            if not NAME.fullmatch(name) or name.startswith(MADE):
                raise ValueError(
                    f"subscriptions: expected names of 1 to 40 of a-z 0-9 _ - that do not begin with {MADE}, found {name[:80]!r}"
                )
            try:
                check_url(each.url, allow_http=self.allow_http, allowed=allowed)
            except ValueError as error:
                raise ValueError(f"subscriptions.{name}: {error}") from None

    @property
    def listens(self) -> bool:
        """Whether it takes requests."""
        return self.token_file is not None or self.token_env is not None

    @property
    def allowed(self) -> tuple[Network, ...]:
        """The networks of `allow_networks`."""
        return networks(self.allow_networks)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)
