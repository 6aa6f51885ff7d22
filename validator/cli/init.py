# SPDX-License-Identifier: Apache-2.0
"""`validator init`: writes a configuration and sample records to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from validator.cli.common import say
from validator.errors import UserError
from validator.resources import first_channel_directory

FILES: Final = ("validator.toml", "blocks.jsonl", "channel-requests.jsonl", "candidates.jsonl")
"""What is written, in the order in which a person reads it."""


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to write to; it is made if needed.")
    ] = Path(),
) -> None:
    """Write `validator.toml`, a commented configuration with two paras, and sample records.

    With these records a channel opens, one message is accepted and one is refused: docs/first-channel.md leads through them.
    Nothing is overwritten: if one of the files exists, nothing is written.
    """
    for path in write(folder):
        typer.echo(str(path))
    say("rules: those of 2020; validator rules list shows later ones, and the file's end how to choose one")
    there = "" if folder == Path() else f"cd {folder}, then "
    say(f"next: {there}validator up, and in another terminal validator submit channel-requests channel-requests.jsonl")


def write(folder: Path) -> list[Path]:
    """Write the files into a folder and return their paths. Raises `UserError`, in this order, for a file that exists, a failed write."""
    paths = [folder / name for name in FILES]
    for path in paths:
        if path.exists() or path.is_symlink():
            raise UserError(f"{path}: expected no such file, found one; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            with path.open("xb") as stream:
                stream.write((first_channel_directory() / path.name).read_bytes())
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from error
    return paths
