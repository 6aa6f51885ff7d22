# SPDX-License-Identifier: Apache-2.0
"""`validator prove` and `validator verify`: proofs that a protocol offers outside of blocks, as JSON."""

from __future__ import annotations

import sys
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

_STANDARD_INPUT: Final = Path("-")

Kind = Annotated[
    str,
    typer.Argument(
        help="The kind of proof: row, head, payload or processing of the XCMP protocols, or one of a plugin's protocol."
    ),
]
File = Annotated[Path, typer.Argument(help="A JSON file, or - for standard input.")]
ProtocolName = Annotated[
    str,
    typer.Option(
        "--protocol", help="The protocol of the proof: xcmp, xcmp-network or a plugin's. The Router has no proofs."
    ),
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
        known = ", ".join(sorted(found.name for found in discover("validator.protocols")))
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
