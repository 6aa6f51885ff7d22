# SPDX-License-Identifier: Apache-2.0
"""Kills a gateway at a named step; it is on PYTHONPATH of the process, and the product has no hook for it.

``CHANNEL_DIES`` is ``before-ack``: Kafka has confirmed a record, and its peer does not know. ``CHANNEL_DIES_AFTER`` is the number of
confirmed records before that.
"""

import os
import signal
import sys
from collections import deque
from importlib.abc import Loader, MetaPathFinder
from importlib.util import find_spec

MODULE = "validator_channel.gateway.intake"


class _Finder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        spec.loader = _Patched(spec.loader)
        return spec


class _Patched(Loader):
    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        after = int(os.environ["CHANNEL_DIES_AFTER"])
        begin = module.Intake.__init__

        class Results(deque):
            """Each confirmed record leaves it immediately before its peer hears of it."""

            taken = 0

            def popleft(self):
                if self.taken == after:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.taken += 1
                return super().popleft()

        def with_results(intake, *args, **options):
            begin(intake, *args, **options)
            intake._results = Results()

        module.Intake.__init__ = with_results


if os.environ.get("CHANNEL_DIES") == "before-ack":
    sys.meta_path.insert(0, _Finder())
