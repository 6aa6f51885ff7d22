# SPDX-License-Identifier: Apache-2.0
"""A process of the transport `relay-chain` that kills itself with SIGKILL at a named step, or runs undisturbed.

``python -m tests.crash.follow_process CONFIG [STEP COUNTDOWN]``. It commits a few blocks at a time, so that a short chain has many commits.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from validator_relay_chain import follow

from validator.cli.transport import run
from validator.errors import UserError
from validator.kafka import transaction

BLOCKS_PER_COMMIT: Final = 3
STEPS: Final = ("converted", "produced", "commit-before", "commit-during", "commit-after")
"""In the order of a block's way to Kafka."""


class Point:
    """Kills this process when ``step`` is reached for the ``countdown``-th time."""

    def __init__(self, step: str, countdown: int) -> None:
        self._step, self._left = step, countdown

    def reach(self, step: str) -> None:
        """Note that a step is reached."""
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                kill = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGKILL))
                kill.start()
                if step != "commit-during":
                    kill.join()


class KillingProducer(Producer):  # type: ignore[misc]
    """A producer whose calls are steps."""

    point: Point

    def produce(self, *given: Any, **named: Any) -> None:
        """Reach ``produced`` after a record."""
        super().produce(*given, **named)
        self.point.reach("produced")

    def commit_transaction(self, *given: Any) -> None:
        """Reach the steps around and during a commit."""
        self.point.reach("commit-before")
        self.point.reach("commit-during")
        super().commit_transaction(*given)
        self.point.reach("commit-after")


def main(config: Path, step: str = "", countdown: str = "0") -> None:
    """Run the transport."""
    point = KillingProducer.point = Point(step, int(countdown))
    convert = follow.convert

    def converted(*given: Any, **named: Any) -> Any:
        found = convert(*given, **named)
        point.reach("converted")
        return found

    follow.convert = converted
    follow.BLOCKS_PER_COMMIT_MAX = BLOCKS_PER_COMMIT  # type: ignore[misc]
    transaction.Producer = KillingProducer  # type: ignore[misc]
    run("relay-chain", config)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), *sys.argv[2:])
    except UserError as error:
        sys.exit(f"validator: {error}")
