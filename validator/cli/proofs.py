# SPDX-License-Identifier: Apache-2.0
"""`validator prove` and `validator verify`: proofs that a protocol offers outside of blocks, as JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from validator import exit_codes
from validator.cli.common import print_json
from validator.document import Node, parse_document
from validator.errors import UserError
from validator.plugin.protocol_api import ProofFormat
from validator.plugin.registry import discover
from validator.plugin.runtime import installed_protocol

DOCUMENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of a JSON document."""

PROTOCOLS: Final = "validator.protocols"
"""The group of entry points of protocols."""

_STANDARD_INPUT: Final = Path("-")


def _offered() -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the kinds of proof of each installed protocol that has any, and the protocols that have none; a damaged one is left out."""
    kinds: dict[str, tuple[str, ...]] = {}
    without: list[str] = []
    for name in sorted({found.name for found in discover(PROTOCOLS)}):
        with suppress(UserError):
            definition = installed_protocol(name)
            if definition is not None and definition.proofs is not None:
                kinds[name] = tuple(definition.proofs.kinds)
            elif definition is not None:
                without.append(name)
    return kinds, without


def _kinds_in_words(kinds: Mapping[str, tuple[str, ...]]) -> str:
    by_kinds: dict[tuple[str, ...], list[str]] = {}
    for name, each in kinds.items():
        by_kinds.setdefault(each, []).append(name)
    return (
        "; ".join(f"{', '.join(each)} ({', '.join(names)})" for each, names in by_kinds.items()) or "none is installed"
    )


_KINDS, _WITHOUT = _offered()  # this module is loaded only by the two commands

Kind = Annotated[str, typer.Argument(help=f"The kind of proof: {_kinds_in_words(_KINDS)}.")]
File = Annotated[Path, typer.Argument(help="A JSON file, or - for standard input.")]
ProtocolName = Annotated[
    str, typer.Option("--protocol", help=f"The protocol of the proof. Without proofs: {', '.join(_WITHOUT) or 'none'}.")
]


def prove(kind: Kind, protocol: ProtocolName, file: File = _STANDARD_INPUT) -> None:
    """Create a proof and print it as JSON for `validator verify`, together with the values to verify it against.

    Exit code 2 if the document is malformed.
    """
    print_json(_proofs(protocol, kind).prove(kind, _document(file)))


def verify(kind: Kind, protocol: ProtocolName, file: File = _STANDARD_INPUT) -> None:
    """Print as JSON whether a proof holds, and what it proves or why it is refused.

    The member `proof` may come from anybody; all other members must be values that you trust. Exit code 1 if the proof is refused, 2 if the
    document is not JSON or one of the other members is malformed.
    """
    result = _proofs(protocol, kind).verify(kind, _document(file))
    print_json(result)
    if not result["ok"]:
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _proofs(protocol: str, kind: str) -> ProofFormat:
    definition = installed_protocol(protocol)
    if definition is None:
        known = ", ".join(sorted(found.name for found in discover(PROTOCOLS)))
        raise UserError(f"--protocol: {protocol!r} is not installed; installed are {known}")
    if definition.proofs is None:
        raise UserError(f"--protocol: {protocol!r} has no proofs")
    if kind not in definition.proofs.kinds:
        raise UserError(f"KIND: expected one of {', '.join(definition.proofs.kinds)}, found {kind!r}")
    return definition.proofs


def _document(file: Path) -> Node:
    name = "standard input" if file == _STANDARD_INPUT else str(file)
    try:
        if file == _STANDARD_INPUT:
            data = sys.stdin.buffer.read(DOCUMENT_BYTES_MAX + 1)
        else:
            with file.open("rb") as stream:
                data = stream.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}") from None
    if len(data) > DOCUMENT_BYTES_MAX:
        raise UserError(f"{name}: expected at most {DOCUMENT_BYTES_MAX} bytes, found more")
    return parse_document(data, name)
