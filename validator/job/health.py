# SPDX-License-Identifier: Apache-2.0
"""Whether a job is healthy, as its endpoint of metrics says: for supervisors, which have room for one answer."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final, TypeAlias

from validator.job.process import running_job
from validator.lanes.configured import job_directory
from validator.metrics.address import LOOPBACK_NAME, parse_address
from validator.metrics.endpoint import BRIEF
from validator.metrics.limits import HEALTH_S_MAX, PAGE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.config import Config

HEALTH: Final = (
    "validator_job_ready",
    "validator_job_outage",
    "validator_job_without_executor_timestamp_seconds",
    "validator_lane_state",
    "validator_lane_blocks_behind",
    "validator_lane_audit_fault_block",
    "validator_lane_silent",
    "validator_job_dead_letters_total",
    "validator_metrics_kafka_up",
)
"""The metrics that count."""

_SAMPLE: Final = re.compile(rf"({'|'.join(HEALTH)})(?:\{{(.*)\}})? (\S+)")
_LABEL: Final = re.compile(r'\blane="([a-z0-9._-]+)"')
_MASTER: Final = re.compile(r'\bmaster="([^"]*)"')
_Sample: TypeAlias = tuple[str, str, float]
"""A metric's name, its labels as the page has them, and its value."""

FAULTS_SHOWN_MAX: Final = 3
"""Lanes whose audit's fault is named."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a job is healthy, and a line about it."""

    healthy: bool
    line: str


def health_of(config: Config) -> Health:
    """Return how a job is: as its endpoint says, or by its process alone if the configuration has no address of one."""
    listen = config.metrics.listen
    if listen is not None and parse_address(listen)[1] != 0:
        return ask(listen)
    directory = job_directory(config)
    pid = running_job(directory)
    if pid is None:
        line = f"no job runs here, in {directory}: `validator up` or `validator run` starts one"
        return Health(healthy=False, line=line)
    line = f"a job runs here (process {pid}); `validator lanes` says how far it is, and this command with [metrics] listen = HOST:PORT"
    return Health(healthy=True, line=line)


def ask(listen: str) -> Health:
    """Ask the endpoint that listens on an address, from the same machine."""
    host, port = parse_address(listen)
    if host != LOOPBACK_NAME and (address := ipaddress.ip_address(host)).is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    connection = HTTPConnection(host, port, timeout=HEALTH_S_MAX)
    try:
        connection.request("GET", BRIEF)
        answer = connection.getresponse()
        page = answer.read(PAGE_BYTES_MAX).decode(errors="replace")
    except OSError as error:
        return Health(healthy=False, line=f"no job answers at {listen}: {error.strerror or error}")
    except HTTPException:
        return Health(healthy=False, line=f"no job answers at {listen}: what answers is no HTTP")
    finally:
        connection.close()
    return judge(page) if answer.status == 200 else Health(healthy=False, line=f"{listen} answers {answer.status}")


def judge(page: str) -> Health:
    """Return what a page of metrics says: a job is healthy while its query runs, also if a lane is parked or its audit has found a fault.

    A supervisor can do nothing about either, and what is not known yet is no reason to end what runs. A lane that a transport feeds and no
    new block reaches is unhealthy: what is missing is not the job, but nobody else looks.
    """
    samples = list(_samples(page))
    values = {name: value for name, _, value in samples}
    if "validator_job_ready" not in values:
        return Health(healthy=False, line="the endpoint is not that of a job")
    for name, labels, value in samples:
        if name == "validator_job_without_executor_timestamp_seconds":
            return Health(healthy=False, line=f"the job waits: {_without_executor(labels, value)}")
    if values.get("validator_job_outage"):
        return Health(healthy=False, line="the job waits for something outside, such as Kafka or space on a disk")
    if not values["validator_job_ready"]:
        return Health(healthy=False, line="the job starts, or restarts")
    states = [labels for name, labels, _ in samples if name == "validator_lane_state"]
    parked = sum('state="parked"' in labels for labels in states)
    line = f"the job runs: {_lanes(len(states))}, {parked} parked, {_behind(samples, len(states))}"
    faults = [(_lane(labels), value) for name, labels, value in samples if name == "validator_lane_audit_fault_block"]
    if faults:
        shown = ", ".join(f"{lane} in block {block:.0f}" for lane, block in faults[:FAULTS_SHOWN_MAX])
        more = f" and {_lanes(len(faults) - FAULTS_SHOWN_MAX)} more" if len(faults) > FAULTS_SHOWN_MAX else ""
        line += f"; the audit has found a fault: {shown}{more}"
    dead = sum(value for name, _, value in samples if name == "validator_job_dead_letters_total")
    if dead:
        line += f"; dead letters since the job started: {dead:.0f} (`validator dead-letters list`)"
    silent = [_lane(labels) for name, labels, value in samples if name == "validator_lane_silent" and value]
    if silent:
        shown = ", ".join(silent[:FAULTS_SHOWN_MAX])
        more = f" and {_lanes(len(silent) - FAULTS_SHOWN_MAX)} more" if len(silent) > FAULTS_SHOWN_MAX else ""
        line += f"; no new block reaches {shown}{more}: the transport that sends them waits, has ended, or was never started"
    if values.get("validator_metrics_kafka_up") == 0:
        line += "; the endpoint cannot read Kafka, so this may be old"
    return Health(healthy=not silent, line=line)


def _without_executor(labels: str, since: float) -> str:
    found = _MASTER.search(labels)
    at = f" at {found[1]}" if found is not None else ""
    return (
        f"Spark's master{at} gives the job no executor since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S UTC}"
    )


def _behind(samples: list[_Sample], lanes: int) -> str:
    """Return how far the last lane is behind, and how many lanes do not say it: a missing value is not 0."""
    behind = [value for name, _, value in samples if name == "validator_lane_blocks_behind"]
    if not behind:
        return "not known yet how many blocks behind"
    unknown = f" (not known yet of {_lanes(lanes - len(behind))})" if len(behind) < lanes else ""
    return f"{max(behind):.0f} blocks behind{unknown}"


def _lanes(count: int) -> str:
    return "1 lane" if count == 1 else f"{count} lanes"


def _lane(labels: str) -> str:
    found = _LABEL.search(labels)
    return found[1] if found is not None else "a lane"


def _samples(page: str) -> Iterator[_Sample]:
    """Yield name, labels and value of the samples that count; a page has thousands of others, which nobody has to parse."""
    for line in page.splitlines():
        found = _SAMPLE.fullmatch(line)
        if found is not None:
            yield found[1], found[2] or "", float(found[3])
