# SPDX-License-Identifier: Apache-2.0
"""Metrics of plugins: what a plugin declares of them, the values that it returns, and how a scrape names them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from validator.metrics.definitions import Kind, Metric, Origin
from validator.metrics.limits import (
    FAULT_CHARACTERS_MAX,
    HELP_CHARACTERS_MAX,
    LABEL_CHARACTERS_MAX,
    OWN_LABELS_MAX,
    OWN_METRICS_MAX,
    OWN_SERIES_MAX,
    VALUE_MAX,
)

PREFIX: Final = "validator_plugin_"
TOTAL: Final = "_total"

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,79}")
_EXPORTED: Final = re.compile(rf"{PREFIX}[a-z0-9_]{{1,180}}")
_RESERVED: Final = frozenset({"job", "instance", "key", "le", "transport"})


@dataclass(frozen=True, slots=True)
class PluginMetric:
    """A metric that a plugin declares.

    ``name`` follows Prometheus: a unit last, and `_total` for a counter, which is everything that ends so; all others are gauges. A scrape
    shows it as ``validator_plugin_PLUGIN_NAME``. ``labels`` are names of labels whose values are few. Raises ``ValueError`` for a bad name,
    a bad label or too many, a help text that is not one printable line, in this order.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"metric: expected a name of a-z 0-9 _, at most 80 characters, found {self.name!r}")
        if len(self.labels) > OWN_LABELS_MAX or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"metric {self.name}: expected at most {OWN_LABELS_MAX} different labels")
        for label in self.labels:
            if not _NAME.fullmatch(label) or label in _RESERVED:
                raise ValueError(f"metric {self.name}: expected another label than {label!r}")
        if not self.help or len(self.help) > HELP_CHARACTERS_MAX or not self.help.isprintable():
            raise ValueError(f"metric {self.name}: expected a line of help, at most {HELP_CHARACTERS_MAX} characters")


class Measure(NamedTuple):
    """A value of a declared metric. A counter's is its total since the process, or the state of the key, began."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


Measures: TypeAlias = Callable[[], Iterable[Measure]]
"""Returns all values of now."""

Value: TypeAlias = tuple[str, tuple[str, ...], float]
"""The scrape's name, the labels that the plugin gives, and the value."""


def exported(plugin: str, of: str, declared: Sequence[PluginMetric]) -> dict[str, Metric]:
    """Return the metrics that a scrape shows, by the declared names; ``of`` is their first label: who has the values.

    Raises ``ValueError``: too many, or two of one name.
    """
    names = [metric.name for metric in declared]
    if len(names) > OWN_METRICS_MAX or len(set(names)) < len(names):
        raise ValueError(f"{plugin}: expected at most {OWN_METRICS_MAX} metrics of different names")
    prefix = PREFIX + re.sub(r"[^a-z0-9]", "_", plugin)
    origin = Origin.TRANSPORT if of == "transport" else Origin.WORKER
    return {
        metric.name: Metric(f"{prefix}_{metric.name}", kind_of(metric.name), (of, *metric.labels), origin, metric.help)
        for metric in declared
    }


def kind_of(name: str) -> Kind:
    return Kind.COUNTER if name.endswith(TOTAL) else Kind.GAUGE


def checked(metrics: dict[str, Metric], values: Iterable[Measure]) -> Iterator[Value]:
    """Yield the scrape's name, labels and value of each measure.

    Raises ``ValueError``: a metric that is not declared, another number of labels, a label that is no short printable text, a value that is
    no number or beyond `VALUE_MAX`, too many series.
    """
    for count, (name, value, labels) in enumerate(values):
        metric = metrics.get(name)
        if metric is None:
            raise ValueError(f"metric {name!r} is not declared")
        if len(labels) != len(metric.labels) - 1:
            raise ValueError(f"metric {name}: expected {len(metric.labels) - 1} labels, found {len(labels)}")
        for label in labels:
            if not isinstance(label, str) or len(label) > LABEL_CHARACTERS_MAX or not label.isprintable():
                raise ValueError(
                    f"metric {name}: expected labels of at most {LABEL_CHARACTERS_MAX} printable characters"
                )
        if type(value) not in (int, float) or not abs(value) < float("inf"):
            raise ValueError(f"metric {name}: expected a number, found {value!r}")
        if abs(value) > VALUE_MAX:
            raise ValueError(f"metric {name}: expected a number between -{VALUE_MAX:g} and {VALUE_MAX:g}")
        if count >= OWN_SERIES_MAX:
            raise ValueError(f"expected at most {OWN_SERIES_MAX} series")
        yield metric.name, tuple(labels), float(value)


def asked(metrics: dict[str, Metric], measures: Measures) -> tuple[list[Value], str | None]:
    """Return what `checked` yields of a plugin's values, and what is wrong with them, in one line; then there are no values.

    Nothing that a plugin does raises here: what it measures is never worth a batch, a thread or a report.
    """
    try:
        return list(checked(metrics, measures())), None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - of a plugin
        return [], _fault(error)


def _fault(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        said = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - of a plugin, again
        return kind
    return f"{kind}: {said}"[:FAULT_CHARACTERS_MAX]


def encode_own(metrics: Iterable[Metric]) -> list[list[object]]:
    return [[metric.name, metric.help, list(metric.labels[1:])] for metric in metrics]


def decode_own(of: str, found: object) -> dict[str, Metric]:
    """Return the definitions of a report by name. Raises ``ValueError``."""
    if not isinstance(found, list) or len(found) > OWN_METRICS_MAX:
        raise ValueError(f"expected a list of at most {OWN_METRICS_MAX} metrics")
    metrics = {}
    for each in found:
        match each:
            case [str(name), str(text), [*labels]] if _EXPORTED.fullmatch(name):
                pass
            case _:
                raise ValueError("expected name, help and labels of each metric of a plugin")
        PluginMetric("x", text, tuple(map(str, labels)))
        origin = Origin.TRANSPORT if of == "transport" else Origin.WORKER
        metrics[name] = Metric(name, kind_of(name), (of, *map(str, labels)), origin, text)
    return metrics
