# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided runs with atheris, where that is installed."""

from __future__ import annotations

import sys
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING

from tests.fuzz.engine import kept_inputs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz.target import Target


def guided(target: Target, folder: Path, inputs: int) -> None:
    """Fuzz a target until one of ``inputs`` breaks a promise, and end the process; ``folder`` keeps inputs with new coverage."""
    atheris = import_module("atheris")
    folder.mkdir(parents=True, exist_ok=True)
    for data in [*target.seeds(), *kept_inputs(target)]:
        (folder / sha256(data).hexdigest()[:16]).write_bytes(data)
    atheris.instrument_all()
    atheris.Setup(
        [sys.argv[0], f"-runs={inputs}", "-max_len=65536", "-timeout=20", "-rss_limit_mb=2048", str(folder)],
        target.check,
    )
    atheris.Fuzz()
