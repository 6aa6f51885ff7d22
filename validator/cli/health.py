# SPDX-License-Identifier: Apache-2.0
"""`validator health`: asks a running job how it is, for supervisors and containers."""

from __future__ import annotations

import sys

import typer

from validator import exit_codes
from validator.cli.common import ConfigPath
from validator.config import load_config
from validator.job.health import health_of


def health(config_path: ConfigPath = None) -> None:
    """Say whether the job on this machine is healthy, by its endpoint `[metrics] listen`; without one, whether its process runs.

    Exit code 0 while its query (without an endpoint, its process) runs, also if a lane is parked or an audit has found a fault, which the
    line says; 1 if it starts, restarts, waits for Kafka or for a disk, or does not answer.
    """
    found = health_of(load_config(config_path))
    sys.stdout.write(f"{found.line}\n")
    raise typer.Exit(exit_codes.OK if found.healthy else exit_codes.DISAGREEMENT)
