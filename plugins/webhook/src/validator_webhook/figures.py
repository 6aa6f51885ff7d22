# SPDX-License-Identifier: Apache-2.0
"""The metrics of subscriptions. Labels are the names of subscriptions, whose number is limited, and kinds of failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from validator.plugin.api import Measure, PluginMetric
from validator_webhook.records import PARKED

if TYPE_CHECKING:
    from validator_webhook.delivery import Subscription

_OF: Final = ("subscription",)
METRICS: Final = (
    PluginMetric("delivered_records_total", "Records that a receiver has taken.", _OF),
    PluginMetric("failed_attempts_total", "Attempts that failed, by kind.", (*_OF, "kind")),
    PluginMetric("waiting_records", "Offsets of its topics that were not looked at for it yet.", _OF),
    PluginMetric("waiting_seconds", "Time since the first attempt at the record that is being delivered.", _OF),
    PluginMetric("removed_records_total", "Offsets that retention removed before they were delivered.", _OF),
    PluginMetric("parked", "1 if the subscription is parked until an operator resumes it.", _OF),
)


def values(subscription: Subscription, waiting_records: int, now_s: float) -> Iterator[Measure]:
    """Yield the values of one subscription; ``now_s`` is the monotonic time."""
    of = (subscription.id,)
    since_s = subscription.waiting_since_s
    yield Measure("delivered_records_total", subscription.delivered, of)
    for kind, count in sorted(subscription.failed.copy().items()):
        yield Measure("failed_attempts_total", count, (*of, kind))
    yield Measure("waiting_records", waiting_records, of)
    yield Measure("waiting_seconds", 0 if since_s is None else max(0.0, now_s - since_s), of)
    yield Measure("removed_records_total", subscription.removed, of)
    yield Measure("parked", int(subscription.state == PARKED), of)
