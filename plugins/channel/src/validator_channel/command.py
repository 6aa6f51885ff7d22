# SPDX-License-Identifier: Apache-2.0
"""The command `validator-channel`."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, NamedTuple

import typer

from validator_channel import __version__, form
from validator_channel.application import ALL_PARAS, SUBMIT_TOPICS, WATCH_TOPICS, parse_position
from validator_channel.errors import printable
from validator_channel.limits import (
    CA_DAYS,
    CA_DAYS_MAX,
    CRL_DAYS,
    CRL_DAYS_MAX,
    LEAF_DAYS_MAX,
    NAME_BYTES_MAX,
)
from validator_channel.net.authority import (
    Usage,
    create_authority,
    describe_file,
    issue_files,
    new_channel,
    revoke_files,
)
from validator_channel.net.certificates import FileError
from validator_channel.replay.cases import Case, DocumentError, Node, play, read_cases, read_document
from validator_channel.replay.judge import judge, read_expected
from validator_channel.replay.vectors import check_vectors, skipped
from validator_channel.wire import format_channel, format_id, parse_id

if TYPE_CHECKING:
    from validator_channel.client.config import ClientConfig
    from validator_channel.gateway.registry import PeerPolicy


FORMAT: Final = "channel-vectors/1"
FAILED: Final = 1
"""Exit code: something failed, or the gateway has refused something."""
WRONG: Final = 2
"""Exit code: wrong arguments, files or lines."""
NO_ANSWER: Final = 3
"""Exit code: no session, or no answer in time."""
INTERRUPTED: Final = 130
"""Exit code: Ctrl-C."""

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"validator-channel {__version__} ({form()})")
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print version and form, and exit.")
    ] = False,
) -> None:
    """Tools for the protocol Channel."""


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A file of the format channel-vectors/1.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the output as JSON and ignore 'expect'.")] = False,
) -> None:
    """Play traces and recompute vectors, and compare each output with the expected one.

    Exit code 1 if any fails, 2 if the file is malformed.
    """
    try:
        document = read_document(file)
        if document.has("format"):
            document["format"].one_of(FORMAT)
        cases = read_cases(document)
        if as_json:
            typer.echo(json.dumps({"cases": [_output(case) for case in cases]}))
            return
        lines = list(_compare(document, cases))
    except DocumentError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(WRONG) from None
    for outcome, text in lines:
        typer.echo(f"{outcome} {text}")
    counts = Counter(outcome for outcome, _ in lines)
    skips = f", {counts['SKIP']} skipped" if counts["SKIP"] else ""
    typer.echo(f"{counts['PASS']} passed, {counts['FAIL']} failed{skips}")
    if counts["FAIL"]:
        raise typer.Exit(FAILED)


def _output(case: Case) -> dict[str, Any]:
    return {"id": case.id, "steps": [outcome.as_json() for outcome in play(case)]}


def _compare(document: Node, cases: list[Case]) -> Iterator[tuple[str, str]]:
    """Yield (PASS, FAIL or SKIP, text) for every entry; every expectation is read before the first trace is played."""
    for name, difference in check_vectors(document):
        yield _line(name, difference)
    for case, expected in [(case, read_expected(case)) for case in cases]:
        yield _line(f"{printable(case.id)} {printable(case.title)}".rstrip(), judge(case, expected, play(case)))
    for name, reason in skipped(document):
        yield "SKIP", f"{name}: {reason}"


def _line(name: str, difference: str | None) -> tuple[str, str]:
    return ("PASS", name) if difference is None else ("FAIL", f"{name}: {difference}")


def main() -> None:
    app()


ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with the keys of the options below, which override it.")
]
Gateways = Annotated[
    list[str] | None, typer.Option("--gateway-address", help="HOST:PORT of the gateway; several are tried in turn.")
]
PeerOption = Annotated[str | None, typer.Option("--peer", help="Our peer ID: 32 hex digits.")]
GatewayPeer = Annotated[str | None, typer.Option("--gateway", help="The gateway's peer ID: 32 hex digits.")]
Certificate = Annotated[str | None, typer.Option("--certificate", help="Our certificate.")]
KeyFile = Annotated[str | None, typer.Option("--key", help="Our private key.")]
CaFile = Annotated[str | None, typer.Option("--ca", help="The CA of the gateway's certificate.")]
ServerName = Annotated[str | None, typer.Option("--server-name", help="What the gateway's certificate names.")]
PskFile = Annotated[str | None, typer.Option("--psk-file", help="The pre-shared key, if there is one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0.0, help="Seconds without an answer, then exit code 3.")
]
Attempts = Annotated[int, typer.Option("--attempts", min=1, help="Attempts to connect in a row, then exit code 3.")]
ATTEMPTS: Final = 11
"""Attempts to connect before a command gives up, by default: 55 to 110 seconds, longer than a standby takes to become active."""


class Client(NamedTuple):
    """What `submit` and `watch` connect with: when they give up, and how they print; without ``timeout_s`` an answer may take any time."""

    config: ClientConfig
    attempts: int
    timeout_s: float | None
    as_json: bool


def _client(
    config: ConfigFile = None,
    gateways: Gateways = None,
    peer: PeerOption = None,
    gateway: GatewayPeer = None,
    certificate: Certificate = None,
    key: KeyFile = None,
    ca: CaFile = None,
    server_name: ServerName = None,
    psk_file: PskFile = None,
    timeout: Timeout = None,
    attempts: Attempts = ATTEMPTS,
    as_json: AsJson = False,
) -> Client:
    from validator_channel.client.config import load_config
    from validator_channel.tables import ConfigError

    options = {"gateways": gateways, "peer": peer, "gateway": gateway, "certificate": certificate, "key": key, "ca": ca}
    try:
        settings = load_config(config, {**options, "server_name": server_name, "psk_file": psk_file})
    except ConfigError as error:
        raise typer.Exit(say(*error.problems)) from None
    return Client(settings, attempts, timeout, as_json)


def _with_client(command: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., None]:
    """Make a command of a coroutine function, whose parameter ``client`` becomes the options of `_client`."""
    own, shared = (signature(each, eval_str=True) for each in (command, _client))

    @wraps(command)
    def run(**given: Any) -> None:
        client = _client(**{name: given.pop(name) for name in shared.parameters})
        from validator_channel.client import running

        raise typer.Exit(running.run(command(client=client, **given)))

    parameters = [each for name, each in own.parameters.items() if name != "client"]
    vars(run)["__signature__"] = own.replace(parameters=[*parameters, *shared.parameters.values()])
    run.__annotations__ = {each.name: each.annotation for each in (*parameters, *shared.parameters.values())}
    return run


@app.command()
@_with_client
async def submit(
    client: Client,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Records in JSON form, one per line; - is standard input.")
    ],
    topic: Annotated[str, typer.Option("--topic", help=f"{', '.join(SUBMIT_TOPICS)}.")] = "candidates",
) -> int:
    """Submit records, and wait until Kafka has each of them.

    If a file has a bad line, nothing of it is sent; standard input is sent up to the first bad line. A record that is submitted again is
    not judged again. Once 256 further blocks are executed (the validator's job.duplicate_window_blocks), the copy becomes a dead letter
    with the reason LATE. Exit code 1 if a record was refused, 2 for wrong arguments or lines, 3 if there was no session or no answer in
    time.
    """
    from validator_channel.client import running

    _check_topic(topic, SUBMIT_TOPICS)
    with _opened(file) as stream:
        if file != "-":
            for _ in running.records(file, stream):
                pass
            stream.seek(0)
        return await running.submit(client, topic, file, stream)


@app.command()
@_with_client
async def watch(
    client: Client,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help=f"{', '.join(WATCH_TOPICS)}.")],
    after: Annotated[
        str,
        typer.Option(help="Begin after this offset (OFFSET, or PARTITION:OFFSET,...), at the start, or at the end."),
    ] = "start",
    count: Annotated[int | None, typer.Option(min=1, help="End after this many records; else with Ctrl-C.")] = None,
) -> int:
    """Print the records of our paras as they are committed, each once, also over a lost connection.

    With --json, each line has `after`: the value to give to --after in order to continue behind it. Exit code 1 if the topic was refused, 2
    for wrong arguments, 3 if there was no session or no record in time.
    """
    from validator_channel.client import running

    _check_topic(topic, WATCH_TOPICS)
    try:
        begin = parse_position(after)
    except ValueError as error:
        raise typer.Exit(say(f"--after: {error}")) from None
    return await running.watch(client, topic, begin, count)


def _check_topic(topic: str, known: Mapping[str, int]) -> None:
    if topic not in known:
        raise typer.Exit(say(f"topic: expected one of {', '.join(known)}, found {topic!r}"))


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as stream:
            yield stream
    except TimeoutError:  # an OSError, too, but of the gateway, which did not answer in time
        raise
    except OSError as error:
        raise typer.Exit(say(f"{name}: {error.strerror}")) from None


def say(*lines: str, code: int = WRONG) -> int:
    """Print lines about what went wrong, and return the exit code."""
    for line in lines:
        typer.echo(f"validator-channel: {printable(line)}", err=True)
    return code


@app.command()
def registry(
    file: Annotated[Path, typer.Argument(help="The registry of peers.")] = Path("peers.toml"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one peer per line.")] = False,
) -> None:
    """Check a registry and show who may do what; every problem is a line on standard error, and the exit code is 2."""
    from validator_channel.gateway.registry import read_registry
    from validator_channel.tables import ConfigError

    try:
        peers = read_registry(file)
    except ConfigError as error:
        raise typer.Exit(say(*error.problems)) from None
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


_DNS_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?:\*\.)?[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")

keys = typer.Typer(no_args_is_help=True, help="Make channel IDs and certificates.")
app.add_typer(keys, name="keys")

AuthorityFolder = Annotated[Path, typer.Option("--ca", help="The folder of the CA.")]
CrlDays = Annotated[
    int, typer.Option("--crl-days", min=1, max=CRL_DAYS_MAX, help="Days until the CRL must be renewed.")
]
KeysAsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@keys.command("new-channel")
def new_channel_command(as_json: KeysAsJson = False) -> None:
    """Print a new random channel ID and two peer IDs of it."""
    channel, peers = new_channel()
    fields = {"channel": format_channel(channel), "peers": list(map(format_id, peers))}
    typer.echo(json.dumps(fields) if as_json else _table(fields))


@keys.command("new-ca")
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


@keys.command("issue")
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
        paths = issue_files(
            ca,
            out / name,
            name=name,
            peers=[_peer(text) for text in peer or []],
            dns=_check_dns(dns or []),
            addresses=ip or [],
            usages=list(dict.fromkeys(usages)),
            days=days,
            request=request,
            overwrite=force,
        )
        _print_files(paths)


@keys.command()
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


@keys.command()
def show(
    file: Annotated[Path, typer.Argument(help="A PEM certificate, private key or CRL.")],
    as_json: KeysAsJson = False,
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
        raise typer.Exit(WRONG) from None
