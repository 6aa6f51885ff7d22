# SPDX-License-Identifier: Apache-2.0
"""The subscriptions as they are kept: what a record and a cursor say, joined with the configuration. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from validator_webhook.config import Configured, Definition, parse_definition
from validator_webhook.delivery import Subscription
from validator_webhook.records import ACTIVE, PARKED, REMOVED, Position, time_of
from validator_webhook.signing import Secrets

CONFIGURATION: Final = "configuration"
HTTP: Final = "http"


class NotNow(ValueError):
    """A request that the present state does not allow."""


def to_record(subscription: Subscription) -> dict[str, Any]:
    """Return the record about a subscription, in JSON form."""
    is_removed = subscription.state == REMOVED
    return {
        "id": subscription.id,
        "state": subscription.state,
        "lane": subscription.lane if subscription.state == PARKED else subscription.definition.lane or "",
        "since_ms": subscription.since_ms,
        "reason": subscription.reason,
        "at": subscription.at,
        "source": subscription.source,
        "uid": subscription.uid,
        "created_ms": subscription.created_ms,
        "definition": "" if is_removed else json.dumps(subscription.definition.to_json()),
    }


def of_http(record: Mapping[str, Any], position: Position, secrets: Secrets) -> Subscription:
    """Return a subscription that a request made, as it was kept; ``secrets`` are those from which its own are derived."""
    return _restored(
        record, position, parse_definition(json.loads(record["definition"])), secrets.derived(record["uid"])
    )


def of_configuration(
    name: str,
    configured: Configured,
    secrets: Secrets,
    record: Mapping[str, Any] | None,
    position: Position | None,
    now_ms: int,
    make_uid: Callable[[], str],
) -> tuple[Subscription, bool]:
    """Return a configured subscription, and whether its record has to be written.

    A parked one whose definition has changed is active again: somebody has looked at it. One that had been taken out of the configuration
    continues where it ended.
    """
    definition = configured.definition
    if record is None:
        return (
            Subscription(
                id=name,
                uid=make_uid(),
                definition=definition,
                source=CONFIGURATION,
                created_ms=now_ms,
                since_ms=now_ms,
                secrets=secrets,
            ),
            True,
        )
    found = _restored(record, position or Position({}), definition, secrets)
    is_changed = record["definition"] != json.dumps(definition.to_json())
    if is_changed:
        activate(found, now_ms)
    return found, is_changed


def activate(subscription: Subscription, now_ms: int) -> None:
    """Let a subscription run again, with the full time until it would be parked."""
    subscription.state, subscription.since_ms = ACTIVE, now_ms
    subscription.reason = subscription.at = subscription.failing_since_ms = subscription.last_failure = None
    subscription.failures, subscription.lane, subscription.changed = 0, "", True


def park(subscription: Subscription, reason: str, now_ms: int) -> None:
    """Park a subscription that cannot be started as it is."""
    subscription.state, subscription.since_ms, subscription.reason = PARKED, now_ms, reason


def shown(subscription: Subscription, waiting_records: int) -> dict[str, Any]:
    """Return a subscription as requests see it, without a secret."""
    failing_ms = subscription.failing_since_ms
    return {
        "id": subscription.id,
        "state": subscription.state,
        "since": time_of(subscription.since_ms),
        "reason": subscription.reason,
        "at": subscription.at,
        "source": subscription.source,
        "created": time_of(subscription.created_ms),
        "definition": subscription.definition.to_json(),
        "delivered": subscription.delivered,
        "failures": subscription.failures,
        "last_failure": subscription.last_failure,
        "failing_since": None if failing_ms is None else time_of(failing_ms),
        "waiting_records": waiting_records,
        "removed_records": subscription.removed,
        "next": {"/".join(map(str, place)): offset for place, offset in sorted(subscription.next.items())},
    }


def newest(values: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the last record of each subscription."""
    return {record["id"]: record for record in values}


def _restored(record: Mapping[str, Any], position: Position, definition: Definition, secrets: Secrets) -> Subscription:
    return Subscription(
        id=record["id"],
        uid=record["uid"],
        definition=definition,
        source=record["source"],
        created_ms=record["created_ms"],
        secrets=secrets,
        state=record["state"],
        since_ms=record["since_ms"],
        reason=record["reason"],
        at=record["at"],
        lane=record["lane"],
        next=dict(position.next),
        failing_since_ms=position.failing_since_ms,
    )
