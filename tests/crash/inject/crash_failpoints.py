# SPDX-License-Identifier: Apache-2.0
"""Kills at named steps, from outside: the product has no hooks, so its functions are wrapped when their modules are imported.

The job's processes and the suite share one folder (`CRASH_POINTS` in the environment):

- ``armed``: JSON, one kill that waits for its step (`Armed`). The process that reaches the step claims it by renaming the file, so it
  fires once;
- ``fired-<id>``: the claimed file. The process that fired adds nothing, since it may be dead by the next instruction;
- ``seen/<step>``: some process has reached the step, armed or not;
- ``constants``: JSON, module -> name -> number: lowered limits, so that rare events happen often.

Standard library only: this runs before anything else in every process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypedDict


class Step(NamedTuple):
    """Where a step is: a method of ``owner`` (a class of ``module``, or "" for a function of it).

    ``when`` is before or after the call, during it (from a thread), or between the items of a generator. A worker reaches a ``fresh`` step
    only at its start, and a ``rare`` one in few batches: the larger a lane, the fewer.
    """

    stage: str
    module: str
    owner: str
    name: str
    when: str
    fresh: bool = False
    rare: bool = False


def _state(name: str, when: str, *, rare: bool = False) -> Step:
    return Step("lanes", "streaming.lane_operator", "SparkState", name, when, rare=rare)


def _producer(name: str, when: str, *, fresh: bool = False) -> Step:
    return Step("lanes", "validator.kafka.transaction", "Producer", name, when, fresh)


STEPS: dict[str, Step] = {
    "read": Step("decode", "streaming.range_reader", "Reading", "step", "before"),
    "read-ahead": Step("decode", "streaming.range_reader", "Ahead", "run", "before", rare=True),
    "chunk-written": Step("decode", "streaming.chunk_files", "ChunkFile", "put", "after"),
    "chunk-read": Step("lanes", "streaming.lane_operator", "", "chunk_of", "before"),
    "decode": Step("decode", "validator.codec.decode", "", "decode_record", "before"),
    "state-read-before": _state("load_head", "before"),
    "state-read-after": _state("load_head", "after"),
    "rebuild-before": Step("lanes", "validator.lanes.processor", "LaneProcessor", "restore", "before", fresh=True),
    "rebuild-catch-up": Step("lanes", "validator.lanes.processor", "LaneProcessor", "catch_up", "after", fresh=True),
    "between-blocks": Step("lanes", "validator.core.lane", "Lane", "execute_ready", "each"),
    "slot-before": _state("save_slot", "before", rare=True),
    "slot-after": _state("save_slot", "after", rare=True),
    "journal-cleared": _state("clear_journal", "after", rare=True),
    "journal-before": _state("append_journal", "before"),
    "journal-after": _state("append_journal", "after"),
    "head-before": _state("save_head", "before"),
    "head-after": _state("save_head", "after"),
    "open-before": _producer("init_transactions", "before", fresh=True),
    "open-after": _producer("init_transactions", "after", fresh=True),
    "marker-read": Step("lanes", "streaming.transactions", "TransactionalWriter", "marker", "after"),
    "begin-before": _producer("begin_transaction", "before"),
    "begin-after": _producer("begin_transaction", "after"),
    "produced": Step("lanes", "streaming.transactions", "TransactionalWriter", "write", "after"),
    "marker-confirmed": Step("lanes", "streaming.transactions", "TransactionalWriter", "confirm", "after"),
    "commit-before": _producer("commit_transaction", "before"),
    "commit-during": _producer("commit_transaction", "during"),
    "commit-after": _producer("commit_transaction", "after"),
}
"""Every step of a batch inside a Python worker, in order."""


_STAGES = {"keyed": "lanes"}
"""A plugin's state stage writes as the lane stage does."""


class Armed(TypedDict):
    """A waiting kill: when a process reaches ``step`` for the ``countdown``-th time, ``signal`` goes to the victims.

    Victims are ``worker`` (the process that reaches the step), its ``jvm`` and ``driver``, and the ``broker`` that ``broker_record`` names.
    """

    id: str
    step: str
    countdown: int
    signal: int
    victims: list[str]
    broker_record: str
    delay_s: float


class _Failpoints:
    def __init__(self, folder: str) -> None:
        self._armed = os.path.join(folder, "armed")  # noqa: PTH118 - pathlib would add imports
        self._fired = os.path.join(folder, "fired-")  # noqa: PTH118
        self._seen = os.path.join(folder, "seen")  # noqa: PTH118
        self._noted: set[str] = set()
        self._stage = _STAGES.get(stage := os.environ.get("VALIDATOR_STAGE", "driver"), stage)
        self._counts: dict[str, int] = {}

    def reach(self, step: str) -> None:
        """Record that a step is reached, and fire what is armed for it; other stages may call the same function."""
        if self._stage != STEPS[step].stage:
            return
        if step not in self._noted:
            self._noted.add(step)
            with open(os.path.join(self._seen, step), "a"):  # noqa: PTH118, PTH123
                pass
        try:
            with open(self._armed, "rb") as file:  # noqa: PTH123
                armed: Armed = json.load(file)
        except (FileNotFoundError, ValueError):
            return
        if armed["step"] != step:
            return
        count = self._counts[armed["id"]] = self._counts.get(armed["id"], 0) + 1
        if count < armed["countdown"]:
            return
        try:
            os.rename(self._armed, self._fired + armed["id"])  # noqa: PTH104
        except FileNotFoundError:
            return  # another process was faster
        if STEPS[step].when == "during":
            threading.Thread(target=_fire, args=(armed,), daemon=True).start()
        else:
            _fire(armed)


def _fire(armed: Armed) -> None:
    if armed["delay_s"]:
        time.sleep(armed["delay_s"])
    # the process that fires goes last
    for victim in sorted(armed["victims"], key=("broker", "driver", "jvm", "worker").index):
        with contextlib.suppress(ProcessLookupError):
            os.kill(_process(victim, armed), armed["signal"])


def _process(victim: str, armed: Armed) -> int:
    if victim == "broker":
        with open(armed["broker_record"], encoding="utf-8") as file:  # noqa: PTH123
            return int(json.load(file)["pid"])
    if victim == "worker":
        return os.getpid()
    jvm = _parent(os.getpid())  # a worker or its fork, the daemon, the JVM, the driver
    while not os.readlink(f"/proc/{jvm}/exe").endswith("/java"):  # noqa: PTH115
        jvm = _parent(jvm)
    return jvm if victim == "jvm" else _parent(jvm)


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        return int(file.read().rpartition(")")[2].split()[1])


def _wrapped(step: str, when: str, call: Callable[..., Any], points: _Failpoints) -> Callable[..., Any]:
    if when == "each":

        @functools.wraps(call)
        def each(*args: Any, **kwargs: Any) -> Iterator[Any]:
            for item in call(*args, **kwargs):
                points.reach(step)
                yield item

        return each

    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if when != "after":
            points.reach(step)
        result = call(*args, **kwargs)
        if when == "after":
            points.reach(step)
        return result

    return wrapper


def patch(module: ModuleType, points: _Failpoints) -> None:
    """Wrap the functions of a module that steps name."""
    for name, step in STEPS.items():
        if step.module != module.__name__:
            continue
        if step.owner == "Producer" and getattr(module.Producer, "__module__", "") != __name__:
            # librdkafka's class is not a Python class: only a subclass can have wrapped methods
            module.Producer = type("Producer", (module.Producer,), {"__module__": __name__})  # type: ignore[attr-defined]
        owner = getattr(module, step.owner) if step.owner else module
        method = step.name
        found = owner.__dict__.get(method)
        if isinstance(found, classmethod):
            setattr(owner, method, classmethod(_wrapped(name, step.when, found.__func__, points)))
        else:
            setattr(owner, method, _wrapped(name, step.when, found or getattr(owner, method), points))


class _PatchingLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, points: _Failpoints, constants: dict[str, int]) -> None:
        self._loader = loader
        self._points = points
        self._constants = constants

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for name, value in self._constants.items():
            getattr(module, name)  # fails if the constant no longer exists
            setattr(module, name, value)
        patch(module, self._points)


class _PatchingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, points: _Failpoints, constants: dict[str, dict[str, int]]) -> None:
        self._points = points
        self._constants = constants
        self._modules = {step.module for step in STEPS.values()} | set(constants)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._modules:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader, self._points, self._constants.get(fullname, {}))
        return spec


def install(folder: str) -> None:
    """Wrap the steps in this process and in those that it forks."""
    os.makedirs(os.path.join(folder, "seen"), exist_ok=True)  # noqa: PTH103, PTH118
    try:
        with open(os.path.join(folder, "constants"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            constants = json.load(file)
    except FileNotFoundError:
        constants = {}
    sys.meta_path.insert(0, _PatchingFinder(_Failpoints(folder), constants))
