# SPDX-License-Identifier: Apache-2.0
"""`validator compare`: compares the verdicts or dispatches on Kafka, or in a file, with expected ones."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from validator import exit_codes
from validator.cli.common import (
    ConfigPath,
    Json,
    did_you_mean,
    drop_output,
    kafka_table,
    lines,
    opened,
    say,
    terminated_as_interrupted,
)
from validator.cli.progress import working
from validator.codec.json_form import shown_json
from validator.config import load_config
from validator.document import parse_document
from validator.errors import UserError
from validator.history.expectation import PLACES, Difference, Expectation, Sort
from validator.kafka.reader import POLL_S, TopicReader
from validator.visible import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_ONLY_IN: Final = {"verdicts": "ok", "dispatches": "outcome"}
"""By topic, a member that records of the other one do not have."""


def compare(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help=f"{' or '.join(PLACES)}.")],
    expected: Annotated[
        str, typer.Argument(metavar="EXPECTED", help="A file of JSON lines, as `validator simulate` writes it.")
    ],
    found: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-", help="Instead of Kafka: a file of `validator watch TOPIC --json`, or standard input."
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Wait for missing records until none has arrived for so long."),
    ] = 0.0,
    limit: Annotated[int, typer.Option(min=0, help="Differences to print; 0: all.")] = 100,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Compare the committed verdicts or dispatches with expected ones. Exit code 1 if any differs, is missing or is not expected.

    Records belong together by lane, block, kind and index. A record must have every member of the expected one; its other members do not
    matter, nor do lanes about which nothing is expected. Prints a line for each difference and the counts; with --json, an object for
    each, then one with the counts. `audit` compares events and receipts with a second execution.
    """
    if topic not in PLACES:
        hint = did_you_mean(topic, PLACES)
        raise UserError(f"TOPIC: expected {' or '.join(PLACES)}, found {topic!r}{hint}")
    if found is not None and wait:
        raise UserError("expected --found or --wait, found both")
    expectation = _read_expected(topic, expected)
    records = _in_file(topic, found) if found is not None else _on_kafka(expectation, config_path, wait_s=wait)
    report = _Report(limit, as_json=as_json)
    try:
        with terminated_as_interrupted(), working(f"comparing {topic}"):
            for record in records:
                difference = expectation.observe(record)
                if difference is not None:
                    report.add(difference)
        for difference in expectation.missing():
            report.add(difference)
        report.end(expectation)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    if expectation.differences:
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _read_expected(topic: str, file: str) -> Expectation:
    expectation = Expectation(topic)
    with opened(file) as (stream, name):
        for number, line in lines(stream, name):
            where = f"{name}, line {number}"
            record = _record(topic, line, where)
            try:
                expectation.expect(record)
            except UserError as error:
                raise UserError(f"{where}: {error}") from None
    if not expectation.count:
        raise UserError(f"{file}: expected at least one record, found none")
    return expectation


def _in_file(topic: str, file: str) -> Iterator[dict[str, Any]]:
    with opened(file) as (stream, name):
        for number, line in lines(stream, name):
            yield _record(topic, line, f"{name}, line {number}")


def _record(topic: str, line: bytes, where: str) -> dict[str, Any]:
    node = parse_document(line, where)
    for other, name in _ONLY_IN.items():
        if other != topic and name in node.object():
            raise UserError(f"{where}: expected {topic}, found a record of {other}: it has the member {name!r}")
    for name in PLACES[topic]:
        if name in ("lane", "kind"):
            node[name].text()
        else:
            node[name].integer()
    return node.object()


def _on_kafka(expectation: Expectation, config_path: Path | None, *, wait_s: float) -> Iterator[dict[str, Any]]:
    """Yield the topic's committed records up to its end, or until all expected ones have arrived or ``wait_s`` passed without a new one."""
    config = load_config(config_path)
    with TopicReader(kafka_table(config), config.topics.prefix, [expectation.topic]) as reader:
        silent_since = time.monotonic()
        while True:
            read = reader.poll(POLL_S)
            for each in read:
                try:
                    record = shown_json(expectation.topic, each.value)
                except UserError as error:  # a foreign record; compare the others
                    say(f"validator: {each.topic}[{each.partition}]@{each.offset}: {error}")
                    continue
                yield record
            if read:
                silent_since = time.monotonic()
            elif reader.at_end and (expectation.complete or time.monotonic() - silent_since >= wait_s):
                return


class _Report:
    """Prints differences, at most ``limit`` of them if that is not 0, and the counts."""

    def __init__(self, limit: int, *, as_json: bool) -> None:
        self._limit = limit
        self._as_json = as_json
        self._added = 0

    def add(self, difference: Difference) -> None:
        self._added += 1
        if not self._limit or self._added <= self._limit:
            sys.stdout.write((json.dumps(difference.to_json()) if self._as_json else _line(difference)) + "\n")

    def end(self, expectation: Expectation) -> None:
        if self._limit and self._added > self._limit:
            say(f"validator: {self._added - self._limit} more differences; --limit 0 prints all")
        summary = expectation.summary()
        sys.stdout.write((json.dumps(summary) if self._as_json else _counts(expectation)) + "\n")


def _line(difference: Difference) -> str:
    parts = [printable("/".join(map(str, difference.place.values()))), str(difference.sort)]
    parts += [] if difference.expected is None else [f"expected {json.dumps(difference.expected)}"]
    parts += [] if difference.found is None else [f"found {json.dumps(difference.found)}"]
    return "  ".join(parts)


def _counts(expectation: Expectation) -> str:
    words = {
        Sort.DIFFERS: "differ",
        Sort.MISSING: "missing",
        Sort.UNEXPECTED: "not expected",
        Sort.REPEATED: "repeated",
    }
    counted = [
        f"{expectation.differences[sort]:,} {word}" for sort, word in words.items() if expectation.differences[sort]
    ]
    agreed = f"{expectation.count:,} {expectation.topic} expected: {expectation.agreed:,} agree"
    return ", ".join([agreed, *counted])
