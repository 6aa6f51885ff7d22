# SPDX-License-Identifier: Apache-2.0
"""Adds the rules that followed lanes lack to a configuration, as text at its end: comments and order stay as they are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from validator.cli.command_api import Config, UserError, check_lanes, load_config, to_toml
from validator_relay_chain.errors import FollowError
from validator_relay_chain.known_rules import KnownRules, RulesEntry, changes, read_rules, write_rules


def wanted_rules(config: Config, plugin: str) -> dict[str, tuple[Path, KnownRules]]:
    """Return, by followed lane whose configuration lacks rules, its folder and its rules. Raises `UserError`."""
    chains: Mapping[str, Any] = config.transports.get(plugin, {}).get("chains", {})
    found = {}
    for lane, source in chains.items():
        folder = Path(source.get("folder", lane))
        try:
            known = read_rules(folder)
        except FollowError as error:
            raise UserError(str(error)) from error
        if known.wanted is not None:
            found[lane] = folder, known
    return found


def adopt_rules(config_path: Path, plugin: str, tell: Callable[[str], None]) -> None:
    """Add the rules that lanes lack to the configuration; an entry that is there for the block already counts.

    Features that somebody has changed in the configuration count from then on.

    The configuration is written before the lane's folder, so that a process that is killed in between begins again here. Raises
    `UserError`: a lane without a chain, an entry that the job would refuse, a file that cannot be written.
    """
    _take_over(load_config(config_path), plugin)
    for lane, (folder, known) in wanted_rules(load_config(config_path), plugin).items():
        wanted = known.wanted
        assert wanted is not None
        config = load_config(config_path)
        if lane not in config.chains:
            raise UserError(
                f"{config_path}: expected [chains.{lane}], whose rules change with block {wanted.from_block}, found none: add its rules, "
                f"{changes(known.at(wanted.from_block) or (), wanted.features)}, where the job has its configuration"
            )
        if wanted.from_block not in (each.from_block for each in config.chains[lane].rules or ()):
            _append(config_path, lane, wanted)
            tell(
                f"{config_path}: rules of lane {lane} from block {wanted.from_block} are added: "
                f"{changes(known.at(wanted.from_block) or (), wanted.features)}"
            )
        try:
            write_rules(folder, known.with_wanted())
        except FollowError as error:
            raise UserError(str(error)) from error


def _take_over(config: Config, plugin: str) -> None:
    """Write the features of a lane's entries as the configuration has them into the lane's folder. Raises `UserError`."""
    for lane, source in config.transports.get(plugin, {}).get("chains", {}).items():
        if lane not in config.chains:
            continue
        folder = Path(source.get("folder", lane))
        listed = {
            each.from_block: tuple(each.features)
            for each in config.chains[lane].rules or ()
            if each.features is not None
        }
        try:
            known = read_rules(folder)
            entries = tuple(
                replace(each, features=listed.get(each.from_block, each.features)) for each in known.entries
            )
            if entries != known.entries:
                write_rules(folder, replace(known, entries=entries))
        except FollowError as error:
            raise UserError(str(error)) from error


def _append(config_path: Path, lane: str, wanted: RulesEntry) -> None:
    path = config_path.resolve()
    new = path.with_name(f"{path.name}.new")
    entry = f"\n[[chains.{json.dumps(lane)}.rules]]\n{to_toml(wanted.to_json())}"
    try:
        shutil.copy(path, new)  # with its mode: it may hold passwords
        with new.open("a", encoding="utf-8") as out:
            out.write(entry)
        try:
            check_lanes(load_config(new))
        except UserError as error:
            new.unlink()
            raise UserError(
                f"{config_path}: cannot take the rules from block {wanted.from_block} on: {error}"
            ) from error
        new.replace(path)
    except OSError as error:
        raise UserError(f"{config_path}: cannot be written: {error.strerror}") from error
