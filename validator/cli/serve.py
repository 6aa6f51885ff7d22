# SPDX-License-Identifier: Apache-2.0
"""`validator serve`: what the topics hold over HTTP, as JSON and as server-sent events."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from validator.cli.common import ConfigPath, connected, say, terminated_as_interrupted
from validator.cli.console import warn_of_other_machines
from validator.errors import UserError, not_installed

LISTEN: Final = "127.0.0.1:8481"
TOKEN_CHARACTERS_MIN: Final = 32
TOKEN_CHARACTERS_MAX: Final = 512


def serve(
    config_path: ConfigPath = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 lets the system choose one.")
    ] = LISTEN,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the token. Default: a random token, another one at each start."),
    ] = None,
) -> None:
    """Serve what the topics hold over HTTP, read-only: verdicts, dispatches, channels, headroom, lanes, dead letters, topics of plugins.

    Every list has pages with a cursor, filters, and a stream of server-sent events that continues exactly where its reader stopped.
    /openapi.json describes all of it. Ctrl-C stops the command.

    It reads Kafka as any consumer does, and writes nothing. Whoever has the token of the address that it prints may read everything. Use
    another address than one of this machine only behind a proxy with TLS.

    Examples:

    - `validator serve` prints its address with the token
    - `validator serve --listen 127.0.0.1:9000 --token-file token` keeps its token over restarts
    """
    for library in ("starlette", "uvicorn"):
        if find_spec(library) is None:
            raise not_installed(library, "console", for_="serve")
    config = connected(config_path)
    token = None if token_file is None else _token_of(token_file)
    warn_of_other_machines(listen)
    from validator.serve.running import RunningLists

    with terminated_as_interrupted(), RunningLists(config, listen, say, token) as running:
        sys.stdout.write(f"{running.url}\n")
        sys.stdout.flush()
        try:
            running.wait()
        except KeyboardInterrupt:
            return


def _token_of(path: Path) -> str:
    """Return the token in a file. Raises `UserError`: the file cannot be read, or holds none."""
    try:
        text = path.read_text("utf-8").strip()
    except OSError as error:
        raise UserError(f"--token-file: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    if (
        not TOKEN_CHARACTERS_MIN <= len(text) <= TOKEN_CHARACTERS_MAX
        or not text.replace("-", "").replace("_", "").isalnum()
        or not text.isascii()
    ):
        raise UserError(
            f"--token-file: {path}: expected one word of {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} letters, digits, - and _, "
            "such as `openssl rand -hex 32` prints"
        )
    return text
