# SPDX-License-Identifier: Apache-2.0
"""The subject of a contract check: a plugin with its examples, played in this process or another one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlparse

from validator.config import DEFAULT_PROTOCOL
from validator.core.outcomes import Dispatch
from validator.core.types import Balance, Para, ParaId, Weight
from validator.plugin.files import find_distribution, is_editable
from validator.plugin.registry import Plugin, discover
from validator.testing.harness import BALANCE, PARAS, Harness, HostConfiguration, resolve_plugin

HANDLERS: Final = "validator.handlers"

NOT_FROM_ARCHIVES: Final = "where workers run"
"""Part of the messages of `validator.plugin.pack` for a distribution that has to be installed on every worker."""


class Broken(AssertionError):
    """A plugin breaks the contract; the text says where, with what input, and what was expected."""


class NotApplicable(Exception):
    """A point of the contract does not apply to a plugin; the text says why."""


@dataclass(frozen=True, slots=True)
class Example:
    """An upward message that a plugin accepts: ``payload``, sent by ``para`` on a chain prepared by ``setup``."""

    payload: bytes
    para: ParaId = PARAS[0]
    setup: Callable[[Harness], object] | None = None


class Played(NamedTuple):
    """An example after its dispatch, with its chain."""

    example: Example
    harness: Harness
    dispatch: Dispatch


@dataclass(frozen=True, slots=True)
class Case:
    """A plugin and the settings to check it with; the fields match `Harness` and `HandlerContract`.

    ``source`` is the file and the name of the class that defines the case, so that other processes can find it.
    """

    plugin: Any
    config: Mapping[str, Any] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    paras: tuple[ParaId | Para, ...] = PARAS
    host_configuration: HostConfiguration = None
    balances: Mapping[ParaId, Balance] | Balance = BALANCE
    protocol: str = DEFAULT_PROTOCOL
    readme: Path | None = None
    source: tuple[str, str] | None = None

    def loaded(self) -> Plugin:
        """Return the plugin. Raises `PluginError`."""
        return resolve_plugin(self.plugin)

    def module(self) -> str:
        """Return the name of the plugin's module. Raises `NotApplicable` if the plugin is not a module."""
        name = self.loaded().found.value.partition(":")[0]
        if name not in sys.modules or not getattr(sys.modules[name], "__file__", None):
            raise NotApplicable("the plugin is an object, not a module")
        return name

    def chain(self, example: Example | None = None, *, weight_max: Weight | None = None) -> Harness:
        """Return a chain on which an example's set-up has run.

        ``weight_max`` bounds every message after the set-up.
        """
        harness = Harness(
            self.plugin,
            self.config,
            paras=self.paras,
            host_configuration=self.host_configuration,
            balances=self.balances,
            protocol=self.protocol,
        )
        if example is not None and example.setup is not None:
            example.setup(harness)
        if weight_max is not None:
            harness.limit_weight(weight_max)
        return harness

    def play(self) -> Iterator[Played]:
        """Play every example on its own chain."""
        for example in self.examples:
            harness = self.chain(example)
            yield Played(example, harness, harness.send(example.payload, example.para))

    def outputs(self) -> list[Any]:
        """Return the outputs of all examples as plain values: equal for equal runs."""
        return [output_of(played) for played in self.play()]


def output_of(played: Played) -> dict[str, Any]:
    """Return an example's output as plain values: its dispatch record, the plugin's state, the state root."""
    dispatch = played.dispatch
    plain = {name: value.hex() if isinstance(value, bytes) else value for name, value in dispatch._asdict().items()}
    plain["events"] = [[event.name, event.data.hex()] for event in dispatch.events]
    plain["messages"] = [[*message[:2], message.mqc_head.hex()] for message in dispatch.messages]
    state = {key.hex(): value.hex() for key, value in played.harness.state.items()}
    return {"dispatch": plain, "state": state, "state_root": played.harness.state_root.hex()}


def python_environment(first_on_path: Iterable[str] = (), hash_seed: str = "0") -> dict[str, str]:
    """Return the environment for a Python process that finds the same modules as this one, with ``first_on_path`` searched first."""
    own = [os.path.abspath(entry) for entry in sys.path if not entry.startswith((sys.prefix, sys.base_prefix))]  # noqa: PTH100
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*first_on_path, *own]),
        "PYTHONHASHSEED": hash_seed,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def run_python(
    arguments: Iterable[str], *, first_on_path: Iterable[str] = (), cwd: Path | None = None, hash_seed: str = "0"
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter in another process, in `python_environment`."""
    environment = python_environment(first_on_path, hash_seed)
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)


def play_elsewhere(case: Case, *, hash_seed: str = "0", first_on_path: Iterable[str] = ()) -> dict[str, Any]:
    """Return the ``outputs`` of the examples in another process, with the plugin's ``file`` and its ``entries`` (entry points).

    Raises `NotApplicable` if that process could not find the examples, `Broken` if it fails.
    """
    if case.source is None:
        raise NotApplicable("its test class is not at the top level of a file, where another process could find it")
    run = run_python(["-m", "validator.testing.case", *case.source], hash_seed=hash_seed, first_on_path=first_on_path)
    if run.returncode != 0:
        raise Broken(f"in a process with PYTHONHASHSEED={hash_seed} the examples do not run:\n{run.stderr.strip()}")
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return result


def distribution_of(plugin: Plugin) -> Distribution:
    """Return the distribution whose entry point names a plugin. Raises `NotApplicable` if there is none."""
    value = plugin.found.value
    for found in discover(HANDLERS):
        if found.value == value and found.name == plugin.manifest.name:
            return find_distribution(found.distribution)
    raise NotApplicable(f"no installed distribution has an entry point {plugin.manifest.name} = {value}")


def packable(distribution: Distribution) -> str:
    """Return the argument for `validator.plugin.pack.pack`: a distribution's name, or the source folder of an editable one."""
    if is_editable(distribution):
        return unquote(urlparse(json.loads(distribution.read_text("direct_url.json") or "{}")["url"]).path)
    return str(distribution.metadata["Name"])


def _main(file: str, name: str) -> None:
    """Load a test class from its file, play its examples, and print their outputs as the last line."""
    spec = importlib.util.spec_from_file_location("validator_contract_subject", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    case: Case = getattr(module, name)().case()
    plugin = case.loaded()
    entries = [[found.entry_name, found.file] for found in discover(HANDLERS) if found.value == plugin.found.value]
    result = {"outputs": case.outputs(), "file": plugin.found.file, "entries": entries}
    sys.stdout.write("\n" + json.dumps(result, sort_keys=True) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
