# SPDX-License-Identifier: Apache-2.0
"""Signatures that the package of Standard Webhooks accepts, and secrets that nothing prints."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError
from validator_webhook.signing import identity, parse_secrets, parse_token, read_text
from webhook_world import SECRET, secret_file

OTHER = "whsec_" + base64.b64encode(b"o" * 24).decode()


def test_each_secret_signs_and_no_other_verifies() -> None:
    secrets = parse_secrets("secret", f"{SECRET}\n{OTHER}\n")
    body = '{"record": "ä"}'.encode()
    headers = dict(secrets.headers("verdicts-0-1-x", datetime.now(UTC), body))
    assert Webhook(SECRET).verify(body, headers) == Webhook(OTHER).verify(body, headers) == {"record": "ä"}
    assert len(headers["webhook-signature"].split(" ")) == 2
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + base64.b64encode(b"x" * 24).decode()).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body + b" ", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body, headers | {"webhook-id": "verdicts-0-2-x"})


def test_derived_secrets_differ_by_subscription_and_are_stable() -> None:
    secrets = parse_secrets("secret", SECRET)
    assert secrets.derived("a").newest == secrets.derived("a").newest != secrets.derived("b").newest
    assert parse_secrets("secret", secrets.derived("a").newest) == secrets.derived("a")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "expected 1 to 4 secrets, one a line, found 0"),
        (f"{SECRET}\n" * 5, "expected 1 to 4 secrets, one a line, found 5"),
        (SECRET.removeprefix("whsec_"), "line 1: expected whsec_ and 24 to 64 bytes in base64"),
        (f"{SECRET}\nwhsec_c2hvcnQ=", "line 2: expected whsec_ and 24 to 64 bytes in base64"),
        ("whsec_%%%%", "line 1: expected whsec_ and 24 to 64 bytes in base64"),
    ],
)
def test_wrong_secrets_are_not_shown(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=r"^secret: ") as raised:
        parse_secrets("secret", text)
    assert str(raised.value) == f"secret: {error}"
    assert "Secrets(" not in repr(parse_secrets("secret", SECRET)) or SECRET not in repr(
        parse_secrets("secret", SECRET)
    )
    assert repr(bytes(range(4)))[2:-1] not in repr(parse_secrets("secret", SECRET))


def test_where_secrets_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    assert read_text("secret", None, "HOOK_SECRET") == SECRET
    path = secret_file(tmp_path)
    assert read_text("secret", path, None).strip() == SECRET
    Path(path).chmod(0o640)
    with pytest.raises(ValueError, match=r"^secret_file: .*only its owner may read \(mode 0600\), found mode 0640$"):
        read_text("secret", path, None)
    with pytest.raises(ValueError, match=r"^secret_file: .*/none: No such file or directory$"):
        read_text("secret", str(tmp_path / "none"), None)
    with pytest.raises(ValueError, match=r"^secret_env: the environment has no NO_SUCH$"):
        read_text("secret", None, "NO_SUCH")
    with pytest.raises(ValueError, match=r"^secret_file: .*: expected at most 4096 bytes$"):
        read_text("secret", secret_file(tmp_path, "long", "x" * 5_000), None)


def test_tokens() -> None:
    assert parse_token("0123456789abcdef\n") == "0123456789abcdef"
    for wrong in ("short", "0123456789 abcdef", "0123456789äbcdef"):
        with pytest.raises(ValueError, match=r"^token: expected at least 16 printable") as raised:
            parse_token(wrong)
        assert wrong not in str(raised.value)


def test_identity_has_no_dot_which_separates_what_is_signed() -> None:
    assert identity("xcmp.queues", 3, 12, "a1b2") == "xcmp:queues-3-12-a1b2"
