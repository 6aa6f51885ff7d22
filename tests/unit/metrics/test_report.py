# SPDX-License-Identifier: Apache-2.0
"""Reports: what is written is read, and nothing else is."""

from __future__ import annotations

import json

import pytest

from validator.metrics.definitions import METRICS, Kind, Origin
from validator.metrics.limits import REPORT_BYTES_MAX
from validator.metrics.report import LANE, TRANSPORT, Report


def test_report_is_read_as_it_was_written() -> None:
    report = Report(LANE, "polkadot")
    report.put("validator_lane_executed_block", 7)
    report.put("validator_channel_messages_total", 3, 2000, 2004)
    report.add["validator_lane_rejections_total"] = {("OutboundHrmp/NoSuchChannel",): 2}
    read = Report.decode(report.encode())
    assert (read.of, read.reporter) == (LANE, "polkadot")
    assert read.set == {
        "validator_lane_executed_block": {(): 7.0},
        "validator_channel_messages_total": {("2000", "2004"): 3.0},
    }
    assert read.add == {"validator_lane_rejections_total": {("OutboundHrmp/NoSuchChannel",): 2.0}}


def test_metric_of_another_version_is_left_out() -> None:
    report = Report(TRANSPORT, "mail")
    report.put("validator_transport_later_figure", 1)
    report.put("validator_transport_active", 1)
    assert Report.decode(report.encode()).set == {"validator_transport_active": {(): 1.0}}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"version":2,"lane":"a","set":{},"add":{}}',
        b'{"version":1,"lane":7,"set":{},"add":{}}',
        b'{"version":1,"lane":"a","set":[],"add":{}}',
        b'{"version":1,"lane":"a","set":{"validator_lane_executed_block":[["x",1]]},"add":{}}',
        b'{"version":1,"lane":"a","set":{"validator_lane_executed_block":[["1"]]},"add":{}}',
        b'{"version":1,"lane":"a","set":{"validator_lane_executed_block":[[true]]},"add":{}}',
        b'{"version":1,"lane":"a","set":{"validator_lane_executed_block":[[NaN]]},"add":{}}',
        b'{"version":1,"lane":"a","set":{"validator_lane_executed_block":[[1%s]]},"add":{}}' % (b"0" * 400),
        b'{"version":1,"lane":"a","set":{"validator_lane_waits":[[{},1]]},"add":{}}',
        b'{"version":1,"lane":"a","set":{"validator_lane_waits":[["\\ud800",1]]},"add":{}}',
        b'{"version":1,"lane":"a","set":{"validator_transport_active":[[1]]},"add":{}}',
        b'{"version":1,"lane":"a","set":{"validator_job_ready":[[1]]},"add":{}}',
        b'{"version":1,"lane":"a","set":{},"add":{"validator_lane_executed_block":[[1]]}}',
        b"[" * 100_000,
        json.dumps({"version": 1, "lane": "a", "set": {}, "add": {}, "more": "x" * REPORT_BYTES_MAX}).encode(),
    ],
)
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"expected|Expecting|codec|Exceeds"):
        Report.decode(data)


def test_names_follow_conventions_and_reports_name_their_reporter() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("validator_")
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert metric.help.endswith("."), metric.name
        assert len(set(metric.labels)) == len(metric.labels)
        if metric.origin is Origin.WORKER:
            assert metric.labels[0] == "lane", metric.name
        if metric.origin is Origin.TRANSPORT:
            assert metric.labels[0] == "transport", metric.name
