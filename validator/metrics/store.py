# SPDX-License-Identifier: Apache-2.0
"""Holds the values of metrics between what brings them and the scrapes that ask for them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from threading import Lock
from types import SimpleNamespace
from typing import Final, NamedTuple, cast

from prometheus_client import Histogram, disable_created_metrics
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from validator import __version__
from validator.metrics import definitions
from validator.metrics.definitions import BATCH_SECONDS_BUCKETS, METRICS, Kind
from validator.metrics.limits import OWN_NAMES_MAX, REPORT_AGE_S_MAX, REPORTERS_MAX, SERIES_PER_REPORTER_MAX
from validator.metrics.report import LANE, TRANSPORT, Labels, Report, Values

_TOTAL: Final = "_total"


class _Reported(NamedTuple):
    """The values of one reporter, and when they came, by this process's own clock."""

    values: Values
    own: dict[str, definitions.Metric]
    """Its plugin's definitions."""
    at_s: float


class MetricStore(Collector):
    """All values of a process's endpoint. Its methods may be called from any thread.

    ``lanes`` are the lanes whose reports count; ``before_scrape`` is called before each scrape.
    """

    def __init__(self, lanes: Collection[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they would be series without a definition
        self._lanes = frozenset(lanes)
        self._clock = clock
        self._lock = Lock()
        self._own: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        self._reported: dict[tuple[str, str], _Reported] = {}
        self._of_plugins: dict[str, definitions.Metric] = {}
        """By name, the newest definition of a plugin's metric."""
        self._grown: defaultdict[tuple[str, Labels], dict[Labels, float]] = defaultdict(dict)
        """Counters of plugins that grow by increments, by name and names of labels: another version may have had others."""
        self._added = 0
        self.before_scrape: list[Callable[[], None]] = []
        self._histograms = {
            metric.name: Histogram(metric.name, metric.help, registry=None, buckets=BATCH_SECONDS_BUCKETS)
            for metric in METRICS
            if metric.kind is Kind.HISTOGRAM
        }
        self.set("validator_build_info", 1, __version__)

    def set(self, name: str, value: float, *labels: str) -> None:
        with self._lock:
            self._own[name][labels] = value

    def remove(self, name: str) -> None:
        with self._lock:
            self._own[name].clear()

    def choose(self, name: str, chosen: str | None, *labels: str) -> None:
        """Set the series of one choice to 1, and remove those of all others; None chooses nothing."""
        with self._lock:
            rows = self._own[name]
            for row in [row for row in rows if row[:-1] == labels]:
                del rows[row]
            if chosen is not None:
                rows[*labels, chosen] = 1

    def add(self, name: str, value: float, *labels: str) -> None:
        with self._lock:
            self._grow(self._own[name], value, labels)

    def observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def take(self, report: Report, *, is_new: bool = True) -> None:
        """Take a report; the increments of one that is not new have been counted, or were made before this process began."""
        reporter = (report.of, report.reporter)
        if report.of == LANE and report.reporter not in self._lanes:
            return
        with self._lock:
            if reporter not in self._reported and len(self._reported) >= REPORTERS_MAX:
                return
            self._define(report)
            self._reported[reporter] = _Reported(report.set, report.own, self._clock())
            for name, rows in report.add.items() if is_new else ():
                own = report.own.get(name)
                into = self._own[name] if own is None else self._grown[name, own.labels]
                for labels, value in rows.items():
                    self._grow(into, value, (report.reporter, *labels))

    def collect(self) -> Iterator[Metric]:
        """Return every metric that has a value, in the order of the definitions."""
        yield from self._collected(METRICS)
        with self._lock:
            own = [self._of_plugins[name] for name in sorted(self._of_plugins)]
            families = [family for metric in own if (family := self._family_of_plugins(metric)) is not None]
        yield from families
        for histogram in self._histograms.values():
            yield from histogram.collect()

    def only(self, names: Collection[str]) -> Collector:
        """Return a collector of some of the program's own metrics, no histograms: the others cost it nothing."""
        metrics = [definitions.BY_NAME[name] for name in names]
        return cast("Collector", SimpleNamespace(collect=lambda: self._collected(metrics)))

    def _collected(self, metrics: Iterable[definitions.Metric]) -> Iterator[Metric]:
        for each in self.before_scrape:
            each()
        with self._lock:
            self._forget_old()
            families = [family for metric in metrics if (family := self._family(metric)) is not None]
        yield from families

    def _define(self, report: Report) -> None:
        """Take a report's definitions of a plugin's metrics: the newest ones give name and help."""
        for name, metric in report.own.items():
            if name in self._of_plugins or len(self._of_plugins) < OWN_NAMES_MAX:
                self._of_plugins[name] = metric

    def _grow(self, rows: dict[Labels, float], value: float, labels: Labels) -> None:
        if labels not in rows:
            if self._added >= SERIES_PER_REPORTER_MAX:
                return
            self._added += 1
        rows[labels] = rows.get(labels, 0) + value

    def _forget_old(self) -> None:
        oldest_s = self._clock() - REPORT_AGE_S_MAX
        for reporter in [
            each for each, found in self._reported.items() if each[0] == TRANSPORT and found.at_s < oldest_s
        ]:
            del self._reported[reporter]

    def _family(self, metric: definitions.Metric) -> Metric | None:
        if metric.kind is Kind.HISTOGRAM:
            return None
        rows = dict(self._own.get(metric.name, ()))
        for (_, reporter), found in self._reported.items():
            for labels, value in found.values.get(metric.name, {}).items():
                rows[reporter, *labels] = value
        return _family(metric, [(metric.labels, rows)])

    def _family_of_plugins(self, metric: definitions.Metric) -> Metric | None:
        """Return a plugin's metric. Two plugins may have one of the same name: each reporter's values stand under its own labels."""
        found: defaultdict[Labels, dict[Labels, float]] = defaultdict(dict)
        for (_, reporter), reported in self._reported.items():
            own = reported.own.get(metric.name)
            if own is not None:
                found[own.labels] |= self._grown.get((metric.name, own.labels), {})
                for labels, value in reported.values.get(metric.name, {}).items():
                    found[own.labels][reporter, *labels] = value
        return _family(metric, sorted(found.items()))


def _family(metric: definitions.Metric, rows: Iterable[tuple[Labels, dict[Labels, float]]]) -> Metric | None:
    """Return a metric with its values, by the names of their labels; None if it has none."""
    family = (
        CounterMetricFamily(metric.name.removesuffix(_TOTAL), metric.help)
        if metric.kind is Kind.COUNTER
        else GaugeMetricFamily(metric.name, metric.help)
    )
    for names, values in rows:
        for labels, value in sorted(values.items()):
            family.add_sample(metric.name, dict(zip(names, labels, strict=True)), value)
    return family if family.samples else None
