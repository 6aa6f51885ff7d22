# SPDX-License-Identifier: Apache-2.0
"""`python -m streaming CONFIGURATION`: the job as a process of its own.

CONFIGURATION is a JSON file, the whole configuration as `validator run` resolved it. The job logs JSON lines to standard error,
each with an ``event``: ``started``, ``ready`` (the query runs), ``batch``, ``stopped``, ``failed``. SIGTERM and SIGINT end it
after the batch that it is in. Exit codes: `validator.cli.exit_codes`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from streaming.run import run_job
from validator.cli import exit_codes
from validator.config import Config
from validator.errors import UserError


def main(arguments: list[str]) -> int:
    """Run the job and return its exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m streaming CONFIGURATION\n")
        return exit_codes.USER_ERROR
    try:
        config = Config.model_validate(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
        return run_job(config)
    except UserError as error:
        sys.stderr.write(f"validator: {error}\n")
        return exit_codes.USER_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
