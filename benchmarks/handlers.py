# SPDX-License-Identifier: Apache-2.0
"""The cost of plugins: calls of a handler, dispatch of messages to each shipped plugin, and start-up with fifty plugins installed."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import NamedTuple

from benchmarks.figures import Figure
from validator.core.handlers.context import Context
from validator.core.handlers.dispatch import DispatchTable, HandlerDispatcher, HandlerEpoch
from validator.core.handlers.handler import BoundHandler, Handler, MessageWeight
from validator.core.handlers.upward import FixedWeightDispatcher, UpwardDispatcher
from validator.core.rules import ChainSettings, LaneRules
from validator.core.types import Para, ParaId
from validator.plugin.registry import handlers_of, installed
from validator.plugin.watchdog import Watchdog
from validator.protocols.router.configuration import PRESETS
from validator.protocols.router.enactment import enact_upward_messages
from validator.protocols.router.host import RouterHost
from validator.protocols.router.rules import ROUTER

CALLS = 50_000
BLOCKS = 90
PARAS = tuple(range(2000, 2100))
PLUGINS = 50


class Shipped(NamedTuple):
    """A plugin of this repository, and messages that succeed."""

    plugin: str
    what: str
    encode: Callable[[ModuleType, ParaId], bytes]
    """Takes the plugin's module, a para other than the sender, and a para that differs in each block."""


SHIPPED = (
    Shipped("remark", "remark, 32 bytes", lambda module, para: module.REMARK + b"\x80" + bytes(32)),
    Shipped(
        "remark", "remark_with_event, 32 bytes", lambda module, para: module.REMARK_WITH_EVENT + b"\x80" + bytes(32)
    ),
    Shipped("balances", "transfer_allow_death", lambda module, para: module.encode_transfer(para, 10**10)),
    Shipped(
        "hrmp-calls",
        "hrmp_init_open_channel",
        lambda module, para: module.encode(module.InitOpenChannel(para, 8, 1024)),
    ),
)


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure; ratios compare figures of the same run."""
    say("handlers: a call against a function's")
    figures = _calls(repeats)
    say("handlers: dispatches of shipped plugins")
    figures += _dispatches(repeats)
    say(f"handlers: start with {PLUGINS} plugins")
    return figures + _starts(max(3, repeats))


# --- a call ---


def _calls(repeats: int) -> list[Figure]:
    """Call an empty handler through the dispatcher, with and without the watchdog, and directly."""

    def handle(context: Context, payload: bytes) -> None:
        pass

    table = DispatchTable([BoundHandler("empty", "1.0", Handler("empty", handle, MessageWeight(1), b"m"))])
    router = _router()
    host = RouterHost(router.state, router.env)
    context = Context(host, PARAS[0], "empty", None, used=0, limit=1)
    plain = HandlerDispatcher([HandlerEpoch(0, table)])
    watched = HandlerDispatcher([HandlerEpoch(0, table)], guard=Watchdog(10.0))
    direct, through, guarded = [], [], []
    for _ in range(repeats):
        direct.append(_microseconds(lambda: handle(context, b"m")))
        through.append(_microseconds(lambda: plain.process(host, PARAS[0], b"m")))
        guarded.append(_microseconds(lambda: watched.process(host, PARAS[0], b"m")))
    return [
        Figure("handlers", "an empty function, called directly", "us", tuple(direct)),
        Figure("handlers", "the same as a handler", "us", tuple(through)),
        Figure("handlers", "... under the watchdog, as in the job", "us", tuple(guarded), at_most=20.0),
        Figure("handlers", "handler against function", "times", _ratios(through, direct)),
        Figure("handlers", "... under the watchdog", "times", _ratios(guarded, direct)),
    ]


def _microseconds(call: Callable[[], object]) -> float:
    with _Quiet():
        began = time.process_time()
        for _ in range(CALLS):
            call()
        return (time.process_time() - began) / CALLS * 1e6


# --- a round ---


def _dispatches(repeats: int) -> list[Figure]:
    """Dispatch the same messages with a table of weights, which ignores them, and with each plugin."""
    figures: list[Figure] = []
    for shipped in SHIPPED:
        dispatcher = _dispatcher_of(shipped.plugin)
        outcomes: set[str] = set()
        module = import_module(f"validator_{shipped.plugin.replace('-', '_')}")
        messages = [
            [shipped.encode(module, PARAS[(at + block) % len(PARAS)]) for at in range(len(PARAS))]
            for block in range(1, BLOCKS + 1)
        ]
        weighed, handled = [], []
        for _ in range(repeats):
            weighed.append(_rate(FixedWeightDispatcher(), messages, set()))
            handled.append(_rate(dispatcher, messages, outcomes))
        assert outcomes == {"ok"}, outcomes
        figures.append(Figure("handlers", f"{shipped.plugin}: {shipped.what}", "dispatches/s", tuple(handled)))
        figures.append(Figure("handlers", "... against a table of weights", "of its rate", _ratios(handled, weighed)))
    return figures


def _dispatcher_of(plugin: str) -> HandlerDispatcher:
    (found,) = installed("validator.handlers", [plugin]).values()
    return HandlerDispatcher([HandlerEpoch(0, DispatchTable(handlers_of(found, "{}")))], guard=Watchdog(10.0))


def _rate(dispatcher: UpwardDispatcher, messages: list[list[bytes]], outcomes: set[str]) -> float:
    router = _router(dispatcher)
    with _Quiet():
        began = time.process_time()
        for block, payloads in enumerate(messages, start=2):
            router.begin_block(block)
            for para, payload in zip(PARAS, payloads, strict=True):
                enact_upward_messages(router.state, para, (payload,))
            dispatched = router.dispatch()
            assert len(dispatched) == len(PARAS)
            outcomes.update(dispatch.outcome for dispatch in dispatched)
        seconds = time.process_time() - began
    return BLOCKS * len(PARAS) / seconds


def _router(dispatcher: UpwardDispatcher | None = None) -> LaneRules:
    limits = replace(PRESETS["polkadot-2023"], hrmp_max_parachain_outbound_channels=len(PARAS))
    router = ROUTER.at_genesis(
        ChainSettings(limits, tuple(Para(para, balance=10**20) for para in PARAS), upward_messages=dispatcher)
    )
    router.begin_block(1)
    return router


# --- a start ---

MODULE = """
from validator.plugin.api import Handler, Manifest, MessageWeight, hookimpl
@hookimpl
def validator_manifest():
    return Manifest("made-{n}", "1.0.0", (2, 0))
@hookimpl
def validator_handlers():
    yield Handler("made-{n}", lambda context, payload: None, MessageWeight(1), prefix=bytes((9, {n})))
"""

START = """
import sys, time
from validator.plugin.registry import discover, load_all
from validator.plugin.runtime import HandlerUse, RuntimePlan, make_runtime
names = [f"made-{n}" for n in range(int(sys.argv[1]))]
make_runtime(RuntimePlan("router", handlers=()))  # work that does not depend on their number
make_runtime.cache_clear()
began = time.perf_counter()
found = discover("validator.handlers")
discovered = time.perf_counter()
load_all([each for each in found if each.name in names])
loaded = time.perf_counter()
make_runtime(RuntimePlan("router", handlers=tuple(HandlerUse(name) for name in names)))
print(discovered - began, loaded - discovered, time.perf_counter() - loaded)
"""


def _starts(repeats: int) -> list[Figure]:
    """Start processes with and without generated distributions on their path."""
    with TemporaryDirectory() as folder:
        for number in range(PLUGINS):
            _generate(Path(folder), number)
        without = [_start(None) for _ in range(repeats)]
        with_plugins = [_start(folder) for _ in range(repeats)]
    figures = []
    for at, step in enumerate(("discover", "import and register", "make the runtime")):
        name = f"{step}, {PLUGINS} plugins"
        figures.append(Figure("handlers", name, "ms", tuple(run[at] * 1e3 for run in with_plugins)))
        figures.append(Figure("handlers", f"{step}, none of them", "ms", tuple(run[at] * 1e3 for run in without)))
    more = tuple((sum(with_) - sum(none)) * 1e3 for with_, none in zip(with_plugins, without, strict=True))
    return [*figures, Figure("handlers", f"start: {PLUGINS} more plugins", "ms", more, at_most=1000.0)]


def _generate(folder: Path, number: int) -> None:
    info = folder / f"made_{number}-1.0.0.dist-info"
    info.mkdir()
    (folder / f"made_{number}.py").write_text(MODULE.format(n=number))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: made-{number}\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(f"[validator.handlers]\nmade-{number} = made_{number}\n")


def _start(folder: str | None) -> tuple[float, ...]:
    program = START if folder is None else f"import sys; sys.path.insert(0, {folder!r})\n{START}"
    command = [sys.executable, "-c", program, str(0 if folder is None else PLUGINS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tuple(map(float, done.stdout.split()))


class _Quiet:
    """Pauses garbage collection while the time runs."""

    def __enter__(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()
        gc.unfreeze()


def _ratios(these: list[float], those: list[float]) -> tuple[float, ...]:
    return tuple(this / that for this, that in zip(these, those, strict=True))
