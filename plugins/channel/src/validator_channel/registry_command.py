# SPDX-License-Identifier: Apache-2.0
"""The command `validator-channel registry`. Exit codes: 0 the registry can be used, 2 it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from validator_channel.application import ALL_PARAS
from validator_channel.ids import format_id
from validator_channel.printing import printable

if TYPE_CHECKING:
    from validator_channel.gateway.policy import PeerPolicy


def registry(
    file: Annotated[Path, typer.Argument(help="The registry of peers.")] = Path("peers.toml"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one peer per line.")] = False,
) -> None:
    """Check a registry and show who may do what; every problem is a line on standard error, and the exit code is 2."""
    from validator_channel.gateway.registry import RegistryError, read_registry

    try:
        peers = read_registry(file)
    except RegistryError as error:
        for problem in error.problems:
            typer.echo(f"validator-channel: {printable(problem)}", err=True)
        raise typer.Exit(2) from None
    for policy in peers.values():
        fields = shown(policy)
        typer.echo(json.dumps(fields) if as_json else _text(fields))


def shown(policy: PeerPolicy) -> dict[str, Any]:
    """Return a peer as people see it, without its pre-shared key."""
    return {
        "name": policy.name,
        "enabled": policy.is_enabled,
        "peer": format_id(policy.peer),
        "gateway": format_id(policy.gateway),
        "lanes": {lane: ALL_PARAS if paras is None else sorted(paras) for lane, paras in policy.lanes.items()},
        "submit": list(policy.submit),
        "watch": list(policy.watch),
        "grants": sorted(policy.grants),
        "pins": sorted(pin.hex() for pin in policy.pins),
        "needs_uri": policy.needs_uri,
        "psk": any(policy.psk),
        "records_per_s": policy.records_per_s,
        "burst": policy.burst,
        "sessions_max": policy.sessions_max,
    }


def _text(fields: dict[str, Any]) -> str:
    state = "" if fields["enabled"] else "  (disabled)"
    lanes = ", ".join(f"{lane} {paras}" for lane, paras in fields["lanes"].items())
    lines = [
        f"{fields['name']}{state}",
        f"  peer     {fields['peer']}",
        f"  gateway  {fields['gateway']}",
        f"  lanes    {lanes}",
    ]
    lines += [f"  {name:<7}  {', '.join(fields[name]) or '-'}" for name in ("submit", "watch", "grants")]
    lines += [f"  pin      {pin}" for pin in fields["pins"]]
    return "\n".join(lines)
