# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing: `python plugins/channel/fuzz/run.py TARGET CORPUS [libFuzzer options]`, for example `-max_total_time=300`.

It needs atheris (`pip install atheris`). TARGET is one of `targets.TARGETS`; CORPUS is a folder that keeps the inputs with new coverage.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["validator_channel", "targets"]):
    from targets import TARGETS, seeds


def main(arguments: list[str]) -> None:
    """Fuzz one target until an input breaks a promise, or the options say stop."""
    if len(arguments) < 3 or arguments[1] not in TARGETS:
        sys.exit(f"usage: run.py {{{','.join(TARGETS)}}} CORPUS [libFuzzer options]")
    program, name, folder, *options = arguments
    corpus = Path(folder)
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds(name):
        (corpus / sha256(seed).hexdigest()[:16]).write_bytes(seed)
    atheris.Setup([program, "-max_len=2048", *options, str(corpus)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
