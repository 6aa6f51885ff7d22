# SPDX-License-Identifier: Apache-2.0
"""The commands `validator-channel keys`: channel IDs, a private CA, certificates, revocation. Exit code 2 for what cannot be done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from validator_channel.ids import format_channel, format_id, parse_id
from validator_channel.net.authority import Usage
from validator_channel.net.describe import describe_file
from validator_channel.net.files import FileError
from validator_channel.net.keys import Order, create_authority, issue_files, new_channel, revoke_files
from validator_channel.net.limits import (
    CA_DAYS,
    CA_DAYS_MAX,
    CRL_DAYS,
    CRL_DAYS_MAX,
    LEAF_DAYS_MAX,
    NAME_BYTES_MAX,
)
from validator_channel.printing import printable

REFUSED: Final = 2
"""Exit code: wrong arguments or files."""
_DNS_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?:\*\.)?[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")

app = typer.Typer(no_args_is_help=True, help="Make channel IDs and certificates.")

AuthorityFolder = Annotated[Path, typer.Option("--ca", help="The folder of the CA.")]
CrlDays = Annotated[
    int, typer.Option("--crl-days", min=1, max=CRL_DAYS_MAX, help="Days until the CRL must be renewed.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("new-channel")
def new_channel_command(as_json: AsJson = False) -> None:
    """Print a new random channel ID and two peer IDs of it."""
    made = new_channel()
    fields = {"channel": format_channel(made.channel), "peers": [format_id(peer) for peer in made.peers]}
    typer.echo(json.dumps(fields) if as_json else _table(fields))


@app.command("new-ca")
def new_ca(
    folder: Annotated[Path, typer.Argument(help="A folder for ca.key, ca.crt and an empty ca.crl.")],
    name: Annotated[str, typer.Option(help="The name of the CA.")] = "channel CA",
    days: Annotated[int, typer.Option(min=1, max=CA_DAYS_MAX, help="Lifetime in days.")] = CA_DAYS,
    crl_days: CrlDays = CRL_DAYS,
) -> None:
    """Create a private CA. Its key belongs on a machine that no peer can reach."""
    with _clear_errors():
        _check_name(name)
        _print_files(create_authority(folder, name, days, crl_days))


@app.command("issue")
def issue_command(
    name: Annotated[str, typer.Argument(help="A name for people; NAME.crt and NAME.key are written.")],
    ca: AuthorityFolder,
    peer: Annotated[list[str] | None, typer.Option(help="A peer ID, 32 hex digits; may be repeated.")] = None,
    dns: Annotated[list[str] | None, typer.Option(help="A DNS name of a server; may be repeated.")] = None,
    ip: Annotated[list[str] | None, typer.Option(help="An IP address of a server; may be repeated.")] = None,
    usage: Annotated[
        list[Usage] | None,
        typer.Option(help="For what; may be repeated. Default: client, and server with --dns or --ip."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=LEAF_DAYS_MAX, help="Lifetime in days.")] = LEAF_DAYS_MAX,
    request: Annotated[Path | None, typer.Option(help="Sign the key of this request; no private key is made.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the files.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Issue a certificate with an Ed25519 key."""
    with _clear_errors():
        _check_name(name)
        usages = usage or [Usage.CLIENT, *([Usage.SERVER] if dns or ip else [])]
        order = Order(
            name=name,
            peers=[_peer(text) for text in peer or []],
            dns=_check_dns(dns or []),
            addresses=ip or [],
            usages=list(dict.fromkeys(usages)),
            days=days,
            request=request,
        )
        _print_files(issue_files(ca, order, out / name, overwrite=force))


@app.command()
def revoke(
    ca: AuthorityFolder,
    certificate: Annotated[
        list[Path] | None, typer.Argument(help="Certificates to revoke; none: only renew the CRL.")
    ] = None,
    crl_days: CrlDays = CRL_DAYS,
) -> None:
    """Add certificates to the CRL and renew it."""
    with _clear_errors():
        total = revoke_files(ca, certificate or [], crl_days)
    typer.echo(f"{printable(str(ca / 'ca.crl'))}: {total} revoked")


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A PEM certificate, private key or CRL.")],
    as_json: AsJson = False,
) -> None:
    """Print what a file holds, and the pin of each key. A private key itself is never printed."""
    with _clear_errors():
        found = describe_file(file)
    typer.echo(json.dumps(found) if as_json else "\n\n".join(map(_table, found)))


def _table(fields: dict[str, Any]) -> str:
    width = max(map(len, fields)) + 2
    rows = []
    for name, value in fields.items():
        values = value if isinstance(value, list) else [value]
        rows += [f"{'' if at else name:{width}}{printable(str(each))}" for at, each in enumerate(values or ["-"])]
    return "\n".join(rows)


def _peer(text: str) -> int:
    try:
        return parse_id(text)
    except ValueError:
        raise FileError(f"--peer: expected 32 lower-case hex digits, found {printable(text)!r}") from None


def _check_name(name: str) -> None:
    if not name.isprintable() or not 1 <= len(name.encode()) <= NAME_BYTES_MAX or "/" in name or name.startswith("."):
        raise FileError(f"name: expected 1 to {NAME_BYTES_MAX} printable bytes without '/', found {name!r}")


def _check_dns(names: list[str]) -> list[str]:
    for name in names:
        if _DNS_NAME.fullmatch(name) is None:
            raise FileError(f"--dns: expected a DNS name in ASCII, found {printable(name)!r}")
    return names


def _print_files(paths: list[Path]) -> None:
    typer.echo("\n".join(printable(str(path)) for path in paths))


@contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except FileError as error:
        typer.echo(printable(str(error)), err=True)
        raise typer.Exit(REFUSED) from None
