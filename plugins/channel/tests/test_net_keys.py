# SPDX-License-Identifier: Apache-2.0
"""The commands `validator-channel keys`: what they write, print and refuse."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from channel_odd import DOUBLED, GOOD_URI, UNKNOWN_KEY, X400_ADDRESS, Patch, keep, sequence, signed_leaf
from channel_tls import CLIENT, SERVER, Pki, World, serving
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner
from validator_channel.command import app
from validator_channel.net.authority import load_authority
from validator_channel.net.certificates import load_certificates
from validator_channel.net.tls import TlsFiles
from validator_channel.wire import channel_of, format_id, parse_channel, parse_id


def keys(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["keys", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def ok(*arguments: object) -> str:
    code, out, err = keys(*arguments)
    assert (code, err) == (0, "")
    return out


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    ok("new-ca", tmp_path / "ca", "--name", "our CA")
    return tmp_path / "ca"


def shown(path: Path) -> Any:
    (found,) = json.loads(ok("show", path, "--json"))
    return found


def test_new_channel_is_random() -> None:
    made = [json.loads(ok("new-channel", "--json")) for _ in range(3)]
    assert len({each["channel"] for each in made}) == 3
    for each in made:
        peers = [parse_id(peer) for peer in each["peers"]]
        assert len(set(peers)) == 2
        assert {channel_of(peer) for peer in peers} == {parse_channel(each["channel"])}
    lines = ok("new-channel").splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["channel", "peers"]


async def test_issued_certificates_work_over_tls(tmp_path: Path) -> None:
    """A real session with the strict contexts, then a revocation that both the CRL and the listener know."""
    pki = Pki(tmp_path / "unused")
    ca, out = tmp_path / "ca", tmp_path
    ok("new-ca", ca)
    ok(*f"issue gateway --ca {ca} --peer {format_id(SERVER)} --ip 127.0.0.1 --dns localhost --out {out}".split())
    ok("issue", "lane", "--ca", ca, "--peer", format_id(CLIENT), "--out", out, "--days", 1)
    pki.server, pki.client = (
        TlsFiles(out / f"{name}.crt", out / f"{name}.key", ca / "ca.crt", ca / "ca.crl") for name in ("gateway", "lane")
    )

    async with serving(World(pki)) as world:
        connection = await world.connect(1)
        assert connection.state == "ONLINE"
        assert ok("revoke", "--ca", ca, out / "lane.crt") == f"{ca / 'ca.crl'}: 1 revoked\n"
        await world.refusal(2)
        await world.listener.recheck()
        await connection.wait_closed()
        assert world.listener.counters.ended == {"REVOKED": 1}


def test_show_prints_what_files_hold(ca: Path, tmp_path: Path) -> None:
    peers = [f"{1:016x}{peer:016x}" for peer in (2, 3)]
    named = f"--peer {peers[0]} --peer {peers[1]} --ip ::1 --dns x.example"
    ok(*f"issue a --ca {ca} {named} --out {tmp_path}".split())
    certificate, key = shown(tmp_path / "a.crt"), shown(tmp_path / "a.key")
    assert certificate["what"] == "certificate"
    assert certificate["subject"] == "CN=a"
    assert certificate["issuer"] == "CN=our CA"
    assert certificate["peers"] == peers
    assert (certificate["dns"], certificate["ip"]) == (["x.example"], ["::1"])
    assert certificate["usage"] == ["client", "server"]
    assert certificate["key"] == "Ed25519"
    assert key == {"what": "private key", "key": "Ed25519", "pin": certificate["pin"]}
    assert shown(ca / "ca.crt")["what"] == "CA certificate"
    assert shown(ca / "ca.crl")["revoked"] == []
    ok("revoke", "--ca", ca, tmp_path / "a.crt")
    crl = shown(ca / "ca.crl")
    assert crl["number"] == 2
    assert crl["revoked"][0].startswith(f"{certificate['serial']} at ")
    table = ok("show", tmp_path / "a.crt")
    assert f"pin      {certificate['pin']}\n" in table
    assert f"peers    {peers[0]}\n         {peers[1]}\n" in table
    secret = (tmp_path / "a.key").read_text().splitlines()[1]
    assert secret not in ok("show", tmp_path / "a.key")
    assert "\nusage    -\n" in ok("show", ca / "ca.crt")


def test_lifetimes_are_short(ca: Path, tmp_path: Path) -> None:
    ok("issue", "a", "--ca", ca, "--out", tmp_path)
    (leaf,) = load_certificates(tmp_path / "a.crt")
    days = (leaf.not_valid_after_utc - leaf.not_valid_before_utc).total_seconds() / 86_400
    assert 29.9 < days < 30.1
    assert keys("issue", "b", "--ca", ca, "--days", 31, "--out", tmp_path)[0] == 2
    assert not (tmp_path / "b.crt").exists()


def test_private_files_are_private_and_never_overwritten(ca: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        ok("issue", "a", "--ca", ca, "--out", tmp_path)
        ok("new-ca", tmp_path / "second")
    finally:
        os.umask(old)
    for path in (tmp_path / "a.key", tmp_path / "second" / "ca.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in (tmp_path / "a.crt", tmp_path / "second" / "ca.crl"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "second").stat().st_mode) == 0o700
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert keys("new-ca", ca) == (2, "", f"{ca / 'ca.key'}: exists already\n")
    assert keys("issue", "a", "--ca", ca, "--out", tmp_path) == (2, "", f"{tmp_path / 'a.key'}: exists already\n")
    (tmp_path / "b.key").symlink_to(tmp_path / "nowhere")
    assert keys("issue", "b", "--ca", ca, "--out", tmp_path)[0] == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    ok("issue", "a", "--ca", ca, "--out", tmp_path, "--force")
    assert (tmp_path / "a.key").read_bytes() != before[tmp_path / "a.key"]


def test_request_is_signed_without_its_private_key(ca: Path, tmp_path: Path) -> None:
    def request(key: Any, algorithm: Any = None) -> Path:
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        path = tmp_path / "request.pem"
        path.write_bytes(builder.sign(key, algorithm).public_bytes(Encoding.PEM))
        return path

    key = Ed25519PrivateKey.generate()
    out = ok("issue", "theirs", "--ca", ca, "--peer", format_id(CLIENT), "--request", request(key), "--out", tmp_path)
    assert out == f"{tmp_path / 'theirs.crt'}\n"
    (leaf,) = load_certificates(tmp_path / "theirs.crt")
    assert leaf.public_key() == key.public_key()
    code, _, err = keys("issue", "rsa", "--ca", ca, "--request", request(generate_private_key(65537, 2048), SHA256()))
    assert (code, err) == (2, f"{tmp_path / 'request.pem'}: expected an Ed25519 key\n")
    code, _, err = keys("issue", "rsa", "--ca", ca, "--request", ca / "ca.crt")
    assert (code, err) == (2, f"{ca / 'ca.crt'}: expected a PEM certificate signing request\n")


def test_revocations_at_once_are_all_kept(ca: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{at}" for at in range(3)]
    for name in names:
        ok("issue", name, "--ca", ca, "--out", tmp_path)
    waiting = names[1:]

    def wait_for_lock(file: Any, operation: int) -> None:
        """Another process has the lock first, and revokes another certificate before this one gets it."""
        assert (file.name, operation) == (str(ca / "ca.key"), fcntl.LOCK_EX)
        if waiting:
            ok("revoke", "--ca", ca, tmp_path / f"{waiting.pop()}.crt")

    monkeypatch.setattr(fcntl, "flock", wait_for_lock)
    ok("revoke", "--ca", ca, tmp_path / f"{names[0]}.crt")
    assert waiting == []
    crl = shown(ca / "ca.crl")
    assert (crl["number"], len(crl["revoked"])) == (4, 3)
    ok("revoke", "--ca", ca, tmp_path / "n0.crt")
    assert ok("revoke", "--ca", ca) == f"{ca / 'ca.crl'}: 3 revoked\n"
    assert shown(ca / "ca.crl")["number"] == 6


def foreign_key(ca: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (ca / "ca.key").write_bytes(pem)


BAD_CALLS = [
    (("issue", "a", "--peer", "12"), "--peer: expected 32 lower-case hex digits, found '12'"),
    (("issue", "a", "--ip", "300.1.1.1"), "a: '300.1.1.1' does not appear to be an IPv4 or IPv6 address"),
    (("issue", "a/b"), "name: expected 1 to 64 printable bytes without '/', found 'a/b'"),
    (("issue", "x" * 65), "name: expected 1 to 64 printable bytes without '/', found"),
    (("issue", "\u00fc" * 33), "name: expected 1 to 64 printable bytes without '/', found"),
    (("issue", "a", "--dns", ""), "--dns: expected a DNS name in ASCII, found ''"),
    (("issue", "a", "--dns", "a\nb.example"), "--dns: expected a DNS name in ASCII, found 'a\\\\nb.example'"),
    (("revoke", "/no\nwhere.crt"), "/no\\nwhere.crt: No such file or directory"),
    (("issue", "a", "--dns", "m\u00fcnchen.example"), "--dns: expected a DNS name in ASCII, found "),
    (("issue", "a", "--out", "/nowhere/at/all"), "/nowhere/at/all/a.key: No such file or directory"),
    (("revoke", "/nowhere.crt"), "/nowhere.crt: No such file or directory"),
]


@pytest.mark.parametrize(("arguments", "line"), BAD_CALLS)
def test_bad_calls_are_one_clear_line(ca: Path, tmp_path: Path, arguments: tuple[str, ...], line: str) -> None:
    extra = () if arguments[0] == "revoke" or "--out" in arguments else ("--out", tmp_path)
    code, out, err = keys(*arguments, "--ca", ca, *extra)
    assert (code, out) == (2, "")
    assert err.startswith(line)
    assert err.count("\n") == 1


def test_broken_cas_are_one_clear_line(ca: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    ok("new-ca", other)
    ok("issue", "theirs", "--ca", other, "--out", tmp_path)
    code, _, err = keys("revoke", "--ca", ca, tmp_path / "theirs.crt")
    assert (code, err) == (2, f"{tmp_path / 'theirs.crt'}: expected a certificate of this CA\n")
    ok("new-ca", tmp_path / "brief", "--days", 5)
    code, _, err = keys("issue", "a", "--ca", tmp_path / "brief")
    assert code == 2
    assert err.startswith(f"{tmp_path / 'brief' / 'ca.crt'}: the CA ends before the certificate, at ")
    foreign_key(ca)
    code, _, err = keys("issue", "a", "--ca", ca)
    assert (code, err) == (2, f"{ca / 'ca.key'}: expected the key of ca.crt, found another one\n")
    code, _, err = keys("issue", "a", "--ca", tmp_path / "missing")
    assert (code, err) == (2, f"{tmp_path / 'missing' / 'ca.crt'}: No such file or directory\n")
    for path in (Path(__file__), tmp_path):
        code, _, err = keys("show", path)
        assert code == 2
        assert err.count("\n") == 1


def test_cas_of_other_programs_are_one_clear_line(ca: Path, tmp_path: Path) -> None:
    code, _, err = keys("new-ca", tmp_path / "wide", "--name", "\u00fc" * 33)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("name: expected 1 to 64 printable bytes")
    authority = load_authority(ca)
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.certificate.subject)
    unnumbered = builder.last_update(now).next_update(now + timedelta(days=1)).sign(authority.key, None)
    (ca / "ca.crl").write_bytes(unnumbered.public_bytes(Encoding.PEM))
    code, _, err = keys("revoke", "--ca", ca)
    assert (code, err) == (2, f"{ca / 'ca.crl'}: expected a CRL with a number\n")


@pytest.mark.parametrize(("names", "patch"), [(X400_ADDRESS, keep), (b"", DOUBLED), (b"", UNKNOWN_KEY)])
def test_odd_certificates_are_one_clear_line(ca: Path, tmp_path: Path, names: bytes, patch: Patch) -> None:
    odd = signed_leaf(Pki(tmp_path / "pki"), "odd", sequence(GOOD_URI, names), patch).certificate
    code, out, err = keys("show", odd)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(str(odd))
    (ca / "ca.crt").write_bytes(odd.read_bytes())
    code, out, err = keys("issue", "a", "--ca", ca, "--out", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
