# SPDX-License-Identifier: Apache-2.0
"""Where the product's files are: those shipped with the package, and those that it keeps.

| what | where |
|---|---|
| schemas | `validator/schemas` in a wheel, `avro/` in a checkout |
| what `validator init` copies | `validator/first_channel` in a wheel, `examples/first-channel/` in a checkout |
| jars, archives of classes and Spark's folder of links, one copy per user | `$XDG_CACHE_HOME/validator`, by default `~/.cache/validator` |
| state: broker data, checkpoints, logs | `.validator` in the working directory, next to `validator.toml` |

With `VALIDATOR_HOME` set, everything that is kept is below it.
"""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def schemas_directory() -> Path:
    """Return the folder of the Avro schemas."""
    shipped = _PACKAGE / "schemas"
    return shipped if shipped.is_dir() else _PACKAGE.parent / "avro"


def first_channel_directory() -> Path:
    """Return the folder of the example that `validator init` copies."""
    shipped = _PACKAGE / "first_channel"
    return shipped if shipped.is_dir() else _PACKAGE.parent / "examples" / "first-channel"


def cache_directory() -> Path:
    """Return the folder of files that can be fetched again; it need not exist."""
    home = os.environ.get("VALIDATOR_HOME")
    if home:
        return Path(home).absolute() / "cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "validator"


def state_directory() -> Path:
    """Return the folder of files that must be kept: broker data, checkpoints, logs; it need not exist."""
    return Path(os.environ.get("VALIDATOR_HOME") or ".validator").absolute()
