# SPDX-License-Identifier: Apache-2.0
"""Finds plugins, loads them one by one, and reports all of their problems at once.

pluggy only registers hooks; the decisions are made here. Entry points are loaded in order of name, and each plugin has its own plugin
manager. So the order of installation has no effect, every exception is attributed to one plugin, and no plugin's failure loses another's
results.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pluggy
from pydantic import TypeAdapter, ValidationError

from validator.core.handlers.handler import BoundHandler, Handler
from validator.errors import UserError
from validator.plugin.api import API_VERSION, Manifest, Transport
from validator.plugin.hookspecs import GROUPS
from validator.plugin.protocol_api import ProtocolDefinition

_FIX_CONFIG: Final = "fix its configuration"


class Found(NamedTuple):
    """A plugin's entry point, not yet loaded."""

    group: str
    entry_name: str
    value: str
    distribution: str
    distribution_version: str
    file: str
    """The folder or archive that it is imported from, according to its distribution."""

    @property
    def name(self) -> str:
        """The plugin's name: the entry point's name up to an ``@``."""
        return self.entry_name.partition("@")[0]

    def __str__(self) -> str:
        return f"{self.entry_name} ({self.distribution} {self.distribution_version}, {self.file})"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a plugin and a hint how to fix it."""

    plugin: str
    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.plugin}: {self.what}: {self.hint}"


class PluginError(UserError):
    """Plugins cannot be used; the text has one line per problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in problems]
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} problems with plugins:", *lines]))

    @property
    def line(self) -> str:
        """All problems in one line."""
        return "; ".join(map(str, self.problems))


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded plugin: its entry point, its manifest and its hooks."""

    found: Found
    manifest: Manifest
    hooks: Any

    def __str__(self) -> str:
        found = self.found
        return f"{self.manifest.name}@{self.manifest.version} ({found.distribution} {found.distribution_version}, {found.file})"


def discover(group: str | None = None) -> list[Found]:
    """Return the entry points of a group, or of all groups, without importing them; sorted by group, name, value and distribution.

    If a distribution is on the path twice, only the first counts, as for imports. Only the metadata of plugins are read: those of a hundred
    other packages would take ten times as long as everything else.
    """
    wanted = GROUPS if group is None else (group,)
    return sorted(_found(entry) for each in wanted for entry in entry_points(group=each))


def load(found: Found) -> Plugin:
    """Import a plugin, register its hooks and read its manifest.

    Raises `PluginError`, in this order, for: an import that fails; hooks that are unknown or do not fit their specification; missing
    hooks; a manifest that cannot be read; a manifest with another name; an incompatible API version.
    """
    try:
        module = EntryPoint(found.entry_name, found.value, found.group).load()
    except (Exception, SystemExit) as error:  # a plugin's module may raise anything
        raise _problem(found, f"importing {found.value} failed ({_text(error)})", _import_hint(error)) from error
    return register(found._replace(file=getattr(module, "__file__", None) or found.file), module)


def register(found: Found, module: Any) -> Plugin:
    """Register the hooks of an imported module (or of an object); raises as `load` does after the import."""
    group = GROUPS[found.group]
    manager = pluggy.PluginManager("validator")
    manager.add_hookspecs(group)
    _check_hooks(manager, module, found)
    try:
        manager.register(module, name=found.entry_name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:  # checks that a later pluggy may add
        raise _problem(found, f"its hooks do not fit ({_text(error)})", _known_hooks(group)) from error
    callers = {name: getattr(manager.hook, name) for name in _hook_names(group)}
    missing = [name for name, caller in callers.items() if not caller.get_hookimpls()]
    if missing:
        raise _problem(found, f"it has no hook {' and no hook '.join(missing)}", "define it, marked with @hookimpl")
    implementations = {name: caller.get_hookimpls()[0] for name, caller in callers.items()}
    manifest = _manifest(found, implementations["validator_manifest"])
    if manifest.name != found.name:
        raise _problem(
            found,
            f"its manifest's name is {manifest.name!r}",
            f"name the entry point {manifest.name}, or {manifest.name}@<anything>",
        )
    major, minor = manifest.api_version
    if major != API_VERSION[0] or minor > API_VERSION[1]:
        own = ".".join(map(str, API_VERSION))
        raise _problem(
            found,
            f"it was written for API {major}.{minor}, this validator has {own}",
            "install a validator with that API"
            if (major, minor) > API_VERSION
            else "install a later version of the plugin",
        )
    return Plugin(found, manifest, implementations)


def register_object(group: str, plugin: Any) -> Plugin:
    """Register a module or object that no entry point names; raises as `register` does."""
    hook = getattr(plugin, "validator_manifest", None)
    manifest = hook() if callable(hook) else None
    name, version = (manifest.name, manifest.version) if isinstance(manifest, Manifest) else ("plugin", "0")
    where = getattr(plugin, "__name__", None) or type(plugin).__qualname__
    return register(Found(group, name, where, name, version, getattr(plugin, "__file__", None) or where), plugin)


def load_all(found: Iterable[Found]) -> tuple[list[Plugin], list[Problem]]:
    """Load the plugins that can be loaded; return them and the problems of the rest. Every duplicate is a problem."""
    plugins: list[Plugin] = []
    problems: list[Problem] = []
    for each in found:
        try:
            plugins.append(load(each))
        except PluginError as error:
            problems += error.problems
    plugins.sort(key=lambda plugin: (plugin.found.group, plugin.manifest.name, plugin.manifest.version))
    for one, other in pairwise(plugins):
        if _identity(one) == _identity(other):
            problems.append(
                Problem(
                    str(one),
                    f"{other} has the same name and version",
                    "remove one of them, or give it another version",
                )
            )
    return plugins, problems


def installed(group: str, names: Iterable[str], shipped: Iterable[str] = ()) -> dict[tuple[str, str], Plugin]:
    """Return every installed version of the named plugins by (name, version); other plugins are not imported.

    Raises `PluginError` with all problems of these plugins and all names that no plugin has; it lists those that there are, and ``shipped``
    ones, which need no installation.
    """
    plugins, problems = find_installed(group, names, shipped)
    if problems:
        raise PluginError(problems)
    return plugins


def find_installed(
    group: str, names: Iterable[str], shipped: Iterable[str] = ()
) -> tuple[dict[tuple[str, str], Plugin], list[Problem]]:
    """Return what `installed` returns for the plugins that load, and the problems of the rest."""
    wanted = sorted(set(names))
    found = [each for each in discover(group) if each.name in wanted] if wanted else []
    plugins, problems = load_all(found)
    there = {each.name for each in found}
    for name in wanted:
        if name not in there:
            known = ", ".join(sorted({*shipped, *(each.name for each in discover(group))})) or "none"
            problems.append(
                Problem(
                    name, f"no installed plugin of group {group} has this name", f"install it; installed are: {known}"
                )
            )
    return {(plugin.manifest.name, plugin.manifest.version): plugin for plugin in plugins}, problems


def configure(plugin: Plugin, values: str) -> Any:
    """Return a plugin's configuration from canonical JSON, or None if the plugin has no configuration. Raises `PluginError`."""
    kind = plugin.manifest.config_type
    given = json.loads(values)
    if kind is None:
        if given:
            raise PluginError(
                [
                    Problem(
                        str(plugin),
                        f"it has no configuration, found config.{', config.'.join(sorted(given))}",
                        "remove it",
                    )
                ]
            )
        return None
    fields = plugin.manifest.config_fields()
    problems = [
        Problem(str(plugin), f"config.{name}: no such key, known are {', '.join(fields)}", _FIX_CONFIG)
        for name in sorted(set(given) - set(fields))
    ]
    config = None
    try:
        known = {name: value for name, value in given.items() if name in fields}
        config = TypeAdapter(kind).validate_json(json.dumps(known), strict=True)
    except ValidationError as error:
        problems += [_of_validation(plugin, each) for each in error.errors(include_url=False)]
    except Exception as error:  # noqa: BLE001 - a plugin's class may raise anything
        problems.append(Problem(str(plugin), f"its configuration class raised {_text(error)}", "fix the plugin"))
    if problems:
        raise PluginError(problems)
    return config


def canonical(values: Any) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def handlers_of(plugin: Plugin, values: str) -> tuple[BoundHandler, ...]:
    """Return the handlers that a plugin yields for a configuration, given as canonical JSON. Raises `PluginError`."""
    config = configure(plugin, values)
    manifest = plugin.manifest
    return tuple(
        BoundHandler(manifest.name, manifest.version, handler, config)
        for handler in _yielded(plugin, "validator_handlers", Handler, config=config)
    )


def protocols_of(plugin: Plugin) -> tuple[ProtocolDefinition, ...]:
    """Return the rule sets that a plugin yields. Raises `PluginError`."""
    return tuple(_yielded(plugin, "validator_protocols", ProtocolDefinition))


def transports_of(plugin: Plugin, values: str) -> tuple[Transport, ...]:
    """Return the transports that a plugin yields for a configuration, given as canonical JSON. Raises `PluginError`."""
    return tuple(_yielded(plugin, "validator_transports", Transport, config=configure(plugin, values)))


def _yielded(plugin: Plugin, hook: str, kind: type[Any], **arguments: Any) -> Iterator[Any]:
    implementation = plugin.hooks[hook]
    try:
        records = list(implementation.function(*(arguments[name] for name in implementation.argnames)))
    except (Exception, SystemExit) as error:
        raise PluginError([Problem(str(plugin), f"{hook} raised {_text(error)}", "fix the plugin")]) from error
    wrong = [record for record in records if not isinstance(record, kind)]
    if wrong:
        found = ", ".join(type(record).__name__ for record in wrong)
        raise PluginError(
            [Problem(str(plugin), f"{hook} yielded {found}", f"yield records of class {kind.__name__} only")]
        )
    yield from records


def _found(entry: EntryPoint) -> Found:
    distribution = entry.dist
    assert distribution is not None  # it is None only for entry points that were not read from a distribution
    module = entry.module.replace(".", "/")
    file = Path(str(distribution.locate_file(module)))
    for candidate in (file, file.with_suffix(".py")):
        if candidate.exists():
            file = candidate
            break
    else:
        file = Path(str(distribution.locate_file("")))
    name = distribution.metadata["Name"] or "?"
    return Found(entry.group, entry.name, entry.value, name, distribution.version, str(file))


def _identity(plugin: Plugin) -> tuple[str, str, str]:
    return plugin.found.group, plugin.manifest.name, plugin.manifest.version


def _manifest(found: Found, implementation: Any) -> Manifest:
    try:
        manifest = implementation.function()
    except (Exception, SystemExit) as error:
        raise _problem(found, f"validator_manifest raised {_text(error)}", "fix the plugin") from error
    if not isinstance(manifest, Manifest):
        raise _problem(found, f"validator_manifest returned {type(manifest).__name__}", "return a Manifest")
    return manifest


def _check_hooks(manager: pluggy.PluginManager, module: Any, found: Found) -> None:
    """Report all misfits at once, in our own words: pluggy reports one at a time, and its wording changes."""
    group = GROUPS[found.group]
    specified = {name: list(inspect.signature(getattr(group, name)).parameters)[1:] for name in _hook_names(group)}
    wrong: list[str] = []
    implemented: dict[str, str] = {}
    for name in sorted(dir(module)):
        options = manager.parse_hookimpl_opts(module, name)
        if options is None:
            continue
        hook = options.get("specname") or name
        if hook not in specified:
            close = get_close_matches(hook, specified, 1)
            wrong.append(f"unknown hook {hook}" + (f", did you mean {close[0]}" if close else ""))
            continue
        if hook in implemented:
            wrong.append(f"{implemented[hook]} and {name} both implement {hook}")
        implemented[hook] = name
        wrong += _misfits(hook, getattr(module, name), options, specified[hook])
    if wrong:
        raise PluginError([Problem(str(found), what, _known_hooks(group)) for what in wrong])


def _misfits(hook: str, function: Any, options: Mapping[str, Any], specified: list[str]) -> Iterator[str]:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        yield f"{hook} is a coroutine function"
    if options.get("wrapper") or options.get("hookwrapper"):
        yield f"{hook} is a wrapper"
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:  # whether pluggy passes those depends on its version
            yield f"{hook} has an argument with a default ({name})"
        elif parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            yield f"{hook} has an argument that is not plainly positional ({name})"
        elif name not in specified:
            yield f"{hook} has an argument that is not passed to it ({name})"


def _hook_names(group: type[Any]) -> list[str]:
    return [name for name in dir(group) if name.startswith("validator_")]


def _known_hooks(group: type[Any]) -> str:
    known = (
        f"{name}({', '.join(list(inspect.signature(getattr(group, name)).parameters)[1:])})"
        for name in _hook_names(group)
    )
    return f"the hooks of this group are {', '.join(known)}"


def _problem(found: Found, what: str, hint: str) -> PluginError:
    return PluginError([Problem(str(found), what, hint)])


def _text(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _import_hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install the package that provides {error.name!r}, or remove the plugin"
    return "fix or remove the plugin"


def _of_validation(plugin: Plugin, error: Any) -> Problem:
    where = ".".join(["config", *map(str, error["loc"])])
    if error["type"] in ("missing", "missing_argument"):
        return Problem(str(plugin), f"{where}: expected a value, found none", _FIX_CONFIG)
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return Problem(str(plugin), f"{where}: no such key", _FIX_CONFIG)
    if error["type"] in ("value_error", "assertion_error"):
        return Problem(str(plugin), f"{where}: {error['msg'].partition(', ')[2]}", _FIX_CONFIG)
    expected = error["msg"].removeprefix("Input should be ").replace("a valid integer", "an integer")
    expected = expected.replace("a valid array", "an array").replace("a valid ", "a ")
    found = json.dumps(error["input"], default=str)[:80]
    return Problem(str(plugin), f"{where}: expected {expected}, found {found}", _FIX_CONFIG)
