# SPDX-License-Identifier: Apache-2.0
"""Documents of the golden recording: conformance suites, the output of `validator replay`, views of states, runtime digests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden import product
from tests.golden.play import Played
from tests.golden.recording_file import Line
from tests.router import generate

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT.parent / "shared" / "traces"
"""Sample traces; their results are compared where both the recording and this checkout have them (`comparable`)."""

SHOWN_PARAS, SHOWN_CHANNELS = 2, 2
"""Number of paras and channels of each lane that are shown separately."""


def documents(played: Played) -> Iterator[Line]:
    """Yield all documents; ``played`` has the final state of the recorded lanes."""
    yield from _generated_suites()
    for suite in product.suite_names():
        names = [path.name for path in product.suite_files(suite)]
        yield _document("suite-files", suite, names)
        yield from _replayed(suite, "--suite", suite)
        code, out, _ = product.command("replay", "--suite", suite)
        yield _document("replay-text", suite, {"exit_code": code, "lines": out.splitlines()})
    for path in sorted(SAMPLES.glob("*.json")):
        yield from _replayed(f"sample/{path.stem}", str(path))
    yield from _states(played)
    yield from _runtimes(played)


def comparable(lines: list[Line], others: list[Line]) -> list[Line]:
    """Return documents without the samples that are not among ``others``: samples come and go, with or without a folder of them."""
    groups = {line["group"] for line in others}
    return [line for line in lines if line["group"] in groups or not line["group"].startswith("replay/sample/")]


def _document(group: str, name: str, value: Any) -> Line:
    return {"group": f"{group}/{name}", "at": name, "value": json.loads(json.dumps(value))}


# --- suites -------------------------------------------------------------------------------------------------------------------------------


def _generated_suites() -> Iterator[Line]:
    """Yield the output of the suite writers: a digest of each file, and one of each scenario to name what differs."""
    texts = {f"router/{group}.json": generate.text_of(group) for group in generate.GROUPS}
    with _importable(ROOT / "plugins" / "early-hrmp" / "tests", ROOT / "plugins" / "xcmp" / "tests"):
        early, xcmp = import_module("early_hrmp_suite"), import_module("xcmp_suite")
    texts |= {f"early-hrmp/{group}.json": early.text_of(group) for group in early.GROUPS}
    texts |= {f"xcmp/{path.name}": text for path, text in xcmp.made().items()}
    for name, text in texts.items():
        parsed = json.loads(text)
        parts = parsed.items() if isinstance(parsed, dict) else ((each["id"], each) for each in parsed)
        value = {part: _digest(json.dumps(content)) for part, content in parts}
        yield _document("suite", name, {"scenarios": value, "text": _digest(text)})


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


@contextmanager
def _importable(*folders: Path) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = before


def _replayed(name: str, *arguments: str) -> Iterator[Line]:
    """Yield the output of `validator replay --json`, one document for each scenario."""
    code, out, _ = product.command("replay", "--json", *arguments)
    if code:
        yield _document("replay", name, {"exit_code": code})
        return
    output = json.loads(out)
    for group, results in output.pop("vectors", {}).items():
        yield _document("replay", f"{name}/vectors/{group}", results)
    for scenario in output.pop("scenarios", [output] if output else []):
        yield _document("replay", f"{name}/{scenario.get('id', 'whole')}", scenario)


# --- states -------------------------------------------------------------------------------------------------------------------------------


def _states(played: Played) -> Iterator[Line]:
    """Yield each lane's state as its protocol writes it, and the output of `validator state show --json` for router lanes."""
    with TemporaryDirectory() as folder:
        checkpoint = product.Checkpoint(Path(folder), played.stored, played.consumed)
        for lane, definition in played.definitions.items():
            worker = product.restore_lane(product.with_fixed_digests(definition), played.stored[lane])
            assert worker is not None
            protocol = definition.plan.protocol
            state = product.view(worker, protocol)
            yield _document("view", lane, state)
            yield _document("genesis", lane, [page.hex() for page in definition.genesis])
            yield _document("genesis-file", lane, _digest(product.genesis_file(definition, Path(folder)).hex()))
            if protocol != "router":
                continue
            yield _shown(checkpoint, lane)
            for para in _sample(state["valid_paras"], SHOWN_PARAS):
                yield _shown(checkpoint, lane, f"--para={para}")
            for channel in _sample(list(state["channels"]), SHOWN_CHANNELS):
                yield _shown(checkpoint, lane, f"--channel={channel.replace('->', ',')}")
            for plugin in sorted({use.plugin for use in definition.plan.handlers or ()}):
                yield _shown(checkpoint, lane, f"--plugin={plugin}")


def _sample(values: list[Any], most: int) -> list[Any]:
    return values[:: max(1, len(values) // most)][:most]


def _shown(checkpoint: product.Checkpoint, lane: str, *arguments: str) -> Line:
    shown = checkpoint.show(lane, *arguments)
    shown.pop("plugins", None)  # it has versions, which the runtime's description also has
    return _document("show", " ".join([lane, *arguments]), shown)


# --- runtimes -----------------------------------------------------------------------------------------------------------------------------


def _runtimes(played: Played) -> Iterator[Line]:
    for lane, definition in played.definitions.items():
        epochs = [
            {
                "from_block": epoch.from_block,
                "digest": epoch.digest.hex(),
                "description": json.loads(epoch.description),
            }
            for epoch in definition.epochs
        ]
        value = {"digest": definition.runtime_digest.hex(), "epochs": epochs, "rules": definition.encode_rules().hex()}
        yield _document("runtime", lane, value)


def without_environment(lines: list[Line], others: list[Line]) -> list[Line]:
    """Return documents whose runtimes can be compared with those of others.

    A runtime's digest also covers the versions of Python and of libraries. If those differ, digests are left out; the rest of the
    descriptions must still be equal.
    """
    environments = {line["group"]: _libraries(line) for line in others if line["group"].startswith("runtime/")}
    compared = []
    for line in lines:
        if line["group"] in environments and environments[line["group"]] != _libraries(line):
            epochs = [
                {**epoch, "digest": None, "description": {**epoch["description"], "libraries": None}}
                for epoch in line["value"]["epochs"]
            ]
            compared.append({**line, "value": {**line["value"], "digest": None, "epochs": epochs}})
        else:
            compared.append(line)
    return compared


def _libraries(line: Line) -> list[Any]:
    return [epoch["description"]["libraries"] for epoch in line["value"]["epochs"]]
