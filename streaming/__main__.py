# SPDX-License-Identifier: Apache-2.0
"""`python -m streaming CONFIGURATION [CHANGE ...]`: the lanes' job, or with `--job NAME` the job of a plugin, as a separate process.

CONFIGURATION is a JSON file with the complete configuration, as `validator run` resolved it. Each CHANGE is a value of `--accept-change`
(`validator.lanes.accepted`). The job logs JSON lines to standard error, each with an ``event``; docs/commands.md lists them. SIGTERM and
SIGINT stop the job after its current batch. Exit codes: `validator.exit_codes`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pydantic import ValidationError

from streaming.run import run_job
from validator import exit_codes
from validator.config import Config
from validator.errors import UserError
from validator.lanes.accepted import read_accepted
from validator.private import UMASK


def main(arguments: list[str]) -> int:
    """Run the job and return its exit code."""
    if not arguments:
        sys.stderr.write("usage: python -m streaming CONFIGURATION [CHANGE ... | --job NAME]\n")
        return exit_codes.USER_ERROR
    try:
        config = _read_configuration(Path(arguments[0]))
        match arguments[1:]:
            case ["--job", name]:
                from streaming.run_keyed import run_keyed_job

                return run_keyed_job(config, name)
            case changes:
                return run_job(config, accepted=read_accepted(changes))
    except UserError as error:
        sys.stderr.write(f"validator: {error}\n")
        return exit_codes.USER_ERROR


def _read_configuration(path: Path) -> Config:
    """Read the configuration from a file. Raises `UserError`.

    Its messages are short: the file is generated. `validator.config.load` explains mistakes in files that people write.
    """
    try:
        return Config.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "configuration"
        raise UserError(
            f"{path}: {where}: {first['msg']}, found {json.dumps(first['input'], default=str)[:60]}"
        ) from error
    except ValueError as error:  # neither UTF-8 nor JSON
        raise UserError(f"{path}: expected JSON: {error}") from error


if __name__ == "__main__":
    os.umask(UMASK)
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # all is closed; taking the interpreter and its modules apart would cost 0.2 s of processor time, for which a stop would wait
    os._exit(code)
