# SPDX-License-Identifier: Apache-2.0
"""Metrics of plugins: what may be declared and measured, and how a report and a scrape show it."""

from __future__ import annotations

import json
from threading import Event, current_thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from validator.metrics.limits import OWN_METRICS_MAX, OWN_SERIES_MAX
from validator.metrics.own import Measure, Measures, PluginMetric, checked, exported
from validator.metrics.report import KEY, TRANSPORT, Report
from validator.metrics.store import MetricStore
from validator.transports.meter import TransportMeter

SENT = PluginMetric("sent_total", "Letters that were sent.", ("country",))
OPEN = PluginMetric("open", "1 while the office is open.")


def page(store: MetricStore) -> list[str]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(store)
    return [line for line in generate_latest(registry).decode().splitlines() if "validator_plugin_" in line]


def metered(measures: Measures, lines: list[str] | None = None) -> TransportMeter:
    meter = TransportMeter("mail.post-office", own=(SENT, OPEN), tell=(lines if lines is not None else []).append)
    meter.measure(measures)
    return meter


def test_values_of_a_transport_reach_a_scrape_with_their_definitions() -> None:
    meter = metered(lambda: [Measure("sent_total", 3, ("fr",)), Measure("sent_total", 4, ("de",)), Measure("open", 1)])
    report = Report.decode(meter.report().encode())
    assert report == Report.decode(report.encode())
    store = MetricStore()
    store.take(report)
    name = "validator_plugin_mail_post_office"
    assert page(store) == [
        f"# HELP {name}_open 1 while the office is open.",
        f"# TYPE {name}_open gauge",
        f'{name}_open{{transport="mail.post-office"}} 1.0',
        f"# HELP {name}_sent_total Letters that were sent.",
        f"# TYPE {name}_sent_total counter",
        f'{name}_sent_total{{country="de",transport="mail.post-office"}} 4.0',
        f'{name}_sent_total{{country="fr",transport="mail.post-office"}} 3.0',
    ]


def test_newer_definition_of_a_plugin_replaces_series_with_other_labels() -> None:
    store = MetricStore()
    for labels, values in (((), ()), (("country",), ("fr",))):
        own = exported("mail", KEY, [PluginMetric("sent_total", "Letters.", labels)])
        report = Report(KEY, "polkadot/mail/0", own={metric.name: metric for metric in own.values()})
        report.add["validator_plugin_mail_sent_total"] = {values: 2}
        store.take(Report.decode(report.encode()))
    assert page(store)[2:] == ['validator_plugin_mail_sent_total{country="fr",key="polkadot/mail/0"} 2.0']


def test_plugins_with_a_metric_of_one_name_have_their_own_labels() -> None:
    """``c`` of ``a-b`` and ``b_c`` of ``a`` have one name in a scrape, and so have a transport and a job of one name."""
    store = MetricStore()
    for of, plugin, name, labels, reporter, value in (
        (TRANSPORT, "a-b", "c", ("peer",), "a-b", "x"),
        (TRANSPORT, "a", "b_c", ("lane",), "a", "polkadot"),
        (KEY, "a", "b_c", ("lane",), "k1", "kusama"),
    ):
        own = exported(plugin, of, [PluginMetric(name, "Counts.", labels)])
        report = Report(of, reporter, own={metric.name: metric for metric in own.values()})
        report.put("validator_plugin_a_b_c", 1, value)
        store.take(Report.decode(report.encode()))
    assert page(store)[2:] == [
        'validator_plugin_a_b_c{key="k1",lane="kusama"} 1.0',
        'validator_plugin_a_b_c{lane="polkadot",transport="a"} 1.0',
        'validator_plugin_a_b_c{peer="x",transport="a-b"} 1.0',
    ]


def fails() -> list[Measure]:
    raise KeyError("country")


def ends() -> list[Measure]:
    raise SystemExit(3)


class Silent(Exception):
    """An error that cannot be said."""

    def __str__(self) -> str:
        raise OSError


def fails_in_silence() -> list[Measure]:
    raise Silent


@pytest.mark.parametrize(
    ("measures", "line"),
    [
        (fails, "KeyError: 'country'"),
        (ends, "SystemExit: 3"),
        (fails_in_silence, "Silent"),
        (lambda: [Measure("lost", 1)], "ValueError: metric 'lost' is not declared"),
        (lambda: [Measure("open", 1, ("x",))], "ValueError: metric open: expected 0 labels, found 1"),
        (lambda: [Measure("open", float("nan"))], "ValueError: metric open: expected a number, found nan"),
        (lambda: [Measure("open", value=True)], "ValueError: metric open: expected a number, found True"),
        (lambda: [Measure("open", 1e305)], "ValueError: metric open: expected a number between -1e+300 and 1e+300"),
        (
            lambda: [Measure("open", -(10**400))],
            "ValueError: metric open: expected a number between -1e+300 and 1e+300",
        ),
        (lambda: [Measure("open", 10**9999)], "ValueError: metric open: expected a number between -1e+300 and 1e+300"),
        (
            lambda: [Measure("sent_total", 1, ("\x1b[2J",))],
            "ValueError: metric sent_total: expected labels of at most 200",
        ),
        (
            lambda: [Measure("sent_total", 1, (str(at),)) for at in range(OWN_SERIES_MAX + 1)],
            f"ValueError: expected at most {OWN_SERIES_MAX} series",
        ),
    ],
)
def test_values_that_cannot_be_used_are_said_once_and_left_out(measures: Measures, line: str) -> None:
    lines: list[str] = []
    meter = metered(measures, lines)
    for _ in range(2):
        report = meter.report()
        assert report.own == {}
        assert not [name for name in report.set if "plugin" in name]
        assert report.set["validator_transport_active"] == {(): 1}
    (said,) = lines
    assert said.startswith(f"transport mail.post-office: its metrics are left out: {line}")


def test_values_that_make_a_report_too_large_are_left_out_until_they_fit() -> None:
    series, lines = OWN_SERIES_MAX, list[str]()
    wide = PluginMetric("wide", "Much.", ("a", "b", "c", "d"))
    meter = TransportMeter("mail", own=(wide,), tell=lines.append)
    meter.measure(lambda: [Measure("wide", 1, (f"{at:0200d}", *("x" * 200,) * 3)) for at in range(series)])
    for _ in range(2):
        report = Report.decode(meter.report().encode())
        assert report.own == {}
        assert "validator_plugin_mail_wide" not in report.set
        assert report.set["validator_transport_active"] == {(): 1}
    (said,) = lines
    assert said.startswith(
        "transport mail: its metrics are left out: expected a report of at most 921600 bytes, found 16"
    )
    series = 3
    assert len(Report.decode(meter.report().encode()).set["validator_plugin_mail_wide"]) == 3


def test_values_that_do_not_come_hold_no_report_and_one_thread() -> None:
    lines: list[str] = []
    asked, begun, go_on = list[str](), Event(), Event()

    def hangs() -> list[Measure]:
        asked.append(current_thread().name)
        begun.set()
        go_on.wait()
        return [Measure("open", 1)]

    meter = TransportMeter("mail", own=(OPEN,), tell=lines.append, patience_s=0.01)
    meter.measure(hangs)
    try:
        for _ in range(5):
            assert meter.report().set["validator_transport_active"] == {(): 1}
        assert begun.wait(60.0)
        assert len(asked) == 1
        assert sum(thread.name == "measures" for thread in enumerate_threads()) == 1
        assert lines == ["transport mail: its metrics are left out: no answer within 0.01 s"]
    finally:
        go_on.set()
    while "validator_plugin_mail_open" not in meter.report().set:  # once it answers, its values are back
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Sent", "x"), "expected a name of a-z 0-9 _"),
        (("x" * 81, "x"), "expected a name of a-z 0-9 _"),
        (("sent", "x", ("a", "b", "c", "d", "e")), "expected at most 4 different labels"),
        (("sent", "x", ("a", "a")), "expected at most 4 different labels"),
        (("sent", "x", ("transport",)), "expected another label than 'transport'"),
        (("sent", ""), "expected a line of help"),
        (("sent", "a\nb"), "expected a line of help"),
    ],
)
def test_declaration_that_prometheus_could_not_serve_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PluginMetric(*arguments)


def test_names_are_few_and_different() -> None:
    for declared in ([OPEN, OPEN], [PluginMetric(f"m{at}", "x") for at in range(OWN_METRICS_MAX + 1)]):
        with pytest.raises(ValueError, match=f"at most {OWN_METRICS_MAX} metrics of different names"):
            exported("mail", TRANSPORT, declared)


@pytest.mark.parametrize(
    "own",
    [
        {},
        [["validator_lane_session", "x", []]],
        [["validator_plugin_X", "x", []]],
        [["validator_plugin_x", "x", [1]]],
        [["validator_plugin_x", "x\n", []]],
        [["validator_plugin_x", "x"]],
        [[1, "x", []]],
        [["validator_plugin_x", "x", []]] * (OWN_METRICS_MAX + 1),
    ],
)
def test_report_with_another_definition_is_refused(own: object) -> None:
    data = json.dumps({"version": 1, "transport": "mail", "set": {}, "add": {}, "own": own}).encode()
    with pytest.raises(ValueError, match="expected"):
        Report.decode(data)


def test_gauge_is_not_added() -> None:
    own = [["validator_plugin_x", "x", []]]
    document = {"version": 1, "key": "k", "set": {}, "add": {"validator_plugin_x": [[1]]}, "own": own}
    with pytest.raises(ValueError, match="counters only"):
        Report.decode(json.dumps(document).encode())


def test_check_names_the_metric_as_a_scrape_does() -> None:
    metrics = exported("mail", TRANSPORT, [SENT])
    assert list(checked(metrics, [Measure("sent_total", 2, ("fr",))])) == [
        ("validator_plugin_mail_sent_total", ("fr",), 2)
    ]
