# SPDX-License-Identifier: Apache-2.0
"""What a measured context counts."""

from __future__ import annotations

from urllib.request import urlopen

import pytest

from tests.contract.transport_backends import LANE, Measured
from validator.config import Config
from validator.transports.meter import measuring


@pytest.fixture
def measured() -> Measured:
    return Measured()


def test_records_are_counted_once_kafka_has_them(measured: Measured) -> None:
    context = measured.start()
    context.submit("blocks", LANE.encode(), b"12345")
    answers: list[str | None] = []
    assert context.enqueue("candidates", LANE.encode(), b"123", answers.append)
    assert answers in ([], [None])
    context.receive(0)
    measured.close()
    assert answers == [None]
    assert measured.figure("written_records_total", "blocks") == 1
    assert measured.figure("written_bytes_total", "blocks") == 5
    assert measured.figure("written_records_total", "candidates") == 1
    assert measured.figure("unconfirmed_records") == 0


def test_refused_records_are_counted(measured: Measured) -> None:
    context = measured.start()
    with pytest.raises(ValueError, match="verdicts"):
        context.submit("verdicts", b"", b"")
    with pytest.raises(ValueError, match="verdicts"):
        context.enqueue("verdicts", b"", b"", lambda _: None)
    assert measured.figure("refused_records_total") == 2
    assert measured.figure("unconfirmed_records") == 0
    measured.close()


def test_received_records_are_counted_until_they_are_acknowledged(measured: Measured) -> None:
    measured.send(("verdicts", b"a", b"1"), ("verdicts", b"a", b"2"))
    context = measured.start()
    assert context.receive(0)
    assert context.receive(0)
    assert measured.figure("received_records_total", "verdicts") == 2
    assert measured.figure("unacknowledged_records") == 2
    context.acknowledge()
    assert measured.figure("unacknowledged_records") == 0
    reader = context.reader(["verdicts"])
    assert reader.receive(0)
    assert measured.figure("received_records_total", "verdicts") == 3
    measured.close()


def test_without_metrics_the_context_is_the_same(measured: Measured) -> None:
    context = measured.start()
    lines: list[str] = []
    with measuring(Config(), "t", lines.append, context) as given:
        assert given is context
    assert lines == []
    measured.close()


def test_transport_serves_its_figures_at_its_address(measured: Measured) -> None:
    config = Config.model_validate({"metrics": {"transports": {"t": "127.0.0.1:0"}}})
    lines: list[str] = []
    with measuring(config, "t", lines.append, measured.start()) as context:
        context.submit("blocks", LANE.encode(), b"12345")
        (line,) = lines
        with urlopen(line.rpartition(" ")[2]) as answer:
            text = answer.read().decode()
    assert 'validator_transport_written_bytes_total{topic="blocks",transport="t"} 5.0' in text
    measured.close()
