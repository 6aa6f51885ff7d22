# SPDX-License-Identifier: Apache-2.0
"""`python -m streaming [CHANGE ...]`: the lanes' job, or with `--job NAME` the job of a plugin, as a separate process.

Standard input has the complete configuration as JSON, as `validator run` resolved it: a file or an argument would show its passwords. Each
CHANGE is a value of `--accept-change` (`validator.lanes.kept_start`). The job logs JSON lines to standard error, each with an ``event``;
docs/output.md lists them. SIGTERM and SIGINT stop the job after its current batch. Exit codes: `validator.exit_codes`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import BinaryIO

from pydantic import ValidationError

from streaming.run import run_job
from validator import exit_codes
from validator.config import Config
from validator.errors import UserError
from validator.lanes.kept_start import read_accepted
from validator.private import UMASK


def main(arguments: list[str]) -> int:
    try:
        config = _read_configuration(sys.stdin.buffer)
        match arguments:
            case ["--job", name]:
                from streaming.run_keyed import run_keyed_job

                return run_keyed_job(config, name)
            case changes:
                return run_job(config, accepted=read_accepted(changes))
    except UserError as error:
        sys.stderr.write(f"validator: {error}\n")
        return exit_codes.USER_ERROR


def _read_configuration(file: BinaryIO) -> Config:
    """Read the configuration. Raises `UserError`.

    Its messages are short and show no value, which may be a password. `validator.config.load` explains mistakes in files that people write.
    """
    try:
        return Config.model_validate(json.loads(file.read()))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise UserError(f"the job's configuration: {where}: {first['msg']}") from None
    except ValueError:  # neither UTF-8 nor JSON, as if whoever started the job was killed meanwhile
        raise UserError("the job's configuration: expected JSON on standard input") from None


if __name__ == "__main__":
    os.umask(UMASK)
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # all is closed; taking the interpreter and its modules apart would cost 0.2 s of processor time, for which a stop would wait
    os._exit(code)
