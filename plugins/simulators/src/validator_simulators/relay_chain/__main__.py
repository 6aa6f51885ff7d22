# SPDX-License-Identifier: Apache-2.0
"""Runs a mock node: ``python -m validator_simulators.relay_chain FOLDER --port 0`` prints its address and serves until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from validator_simulators.relay_chain import Fault, MockNode, Recording, RecordingError, Speech

EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a recording. Returns the exit code: 0 after a signal, 2 for a bad argument or recording, 1 if the port is taken."""
    options = _parser().parse_args(arguments)
    try:
        faults = [Fault.parse(text) for text in options.fault]
        recording = Recording.load(options.folder, *options.file)
        head = recording.last if options.head is None else options.head
        if head not in recording.canonical:
            raise RecordingError(f"--head: expected {recording.first} to {recording.last}, found {head}")
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    node = MockNode(
        recording,
        faults,
        port=options.port,
        head=head,
        pace_s=options.pace,
        step=options.step,
        speaks=options.speaks or None,
    )
    stop = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stop.set())
    try:
        with node:
            sys.stdout.write(f"{node.url} serves blocks {recording.first} to {recording.last}\n")
            sys.stdout.flush()
            stop.wait()
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m validator_simulators.relay_chain", description="A mock node of a relay chain."
    )
    parser.add_argument("folder", type=Path, help="recorded blocks, storage, metadata/ and runtime_versions.json")
    parser.add_argument("--file", action="append", default=[], help="a file of blocks in the folder; default: all")
    parser.add_argument("--port", type=int, default=9944, help="0 lets the system choose; default 9944")
    parser.add_argument("--head", type=int, help="finalised block to begin with; default: the last one")
    parser.add_argument("--pace", type=float, metavar="SECONDS", help="finalise more blocks each time that this passes")
    parser.add_argument("--step", type=int, default=1, help="how many blocks each time; default 1")
    parser.add_argument(
        "--speaks",
        action="append",
        type=Speech,
        choices=list(Speech),
        help="a group of methods; may be repeated; default: old",
    )
    parser.add_argument(
        "--fault", action="append", default=[], metavar="KIND[:METHOD[:AFTER[:COUNT[:VALUE]]]]",
        help="an answer that goes wrong; may be repeated",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
