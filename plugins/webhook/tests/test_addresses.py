# SPDX-License-Identifier: Apache-2.0
"""Which addresses and URLs nothing is sent to."""

from __future__ import annotations

import pytest
from validator_webhook.addresses import check_url, networks, refusal


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
        "169.254.169.254", "100.64.0.1",
        "100.100.100.200", "192.0.0.192", "168.63.129.16", "198.18.0.1", "192.0.2.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
        "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::",
        "2002:a00:1::",
        "::127.0.0.1", "2001:db8::1", "2001::1", "fec0::1",
    ],
)  # fmt: skip
def test_special_addresses_are_refused(address: str) -> None:
    why = refusal(address, ())
    assert why is not None
    assert why.endswith("; allow_networks does not allow it")


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.216.34",
        "2606:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "172.32.0.1",
        "2002:101:101::",
    ],
)
def test_public_addresses_may_be_used(address: str) -> None:
    assert refusal(address, ()) is None


def test_words_name_address_and_kind() -> None:
    assert refusal("169.254.169.254", ()) == "169.254.169.254 is a link-local address; allow_networks does not allow it"
    assert refusal("::ffff:10.0.0.1", ()) == (
        "10.0.0.1 in ::ffff:10.0.0.1 is an address of a private network; allow_networks does not allow it"
    )


def test_networks_that_are_allowed() -> None:
    allowed = networks(["10.1.0.0/16", "::1"])
    assert [refusal(each, allowed) is None for each in ("10.1.2.3", "::ffff:10.1.2.3", "10.2.0.1", "::1", "127.0.0.1")] == [
        True, True, False, True, False,
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"expected networks such as 10.1.0.0/16, found '10.1.0.1/16'"):
        networks(["10.1.0.1/16"])


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("", "1 to 2000 printable ASCII"),
        ("https://example.com/" + "x" * 2_000, "1 to 2000 printable ASCII"),
        ("https://example.com/a b", "without spaces"),
        ("https://example.com/\n", "printable"),
        ("https://exämple.com/", "ASCII"),
        ("http://example.com/", "expected https, found 'http'; allow_http allows http"),
        ("ftp://example.com/", "expected https, found 'ftp'"),
        ("example.com", "expected https, found ''"),
        ("https:///hook", "expected a host"),
        ("https://user:secret@example.com/", "without a login"),
        ("https://example.com\\@127.0.0.1/", "without a login"),
        ("https://example.com:99999/", "expected an address such as"),
        ("https://example.com:0/", "no port 0"),
        ("https://example.com/#x", "no fragment"),
        ("https://[::1/", "expected an address such as"),
        ("https://127.0.0.1/", "127.0.0.1 is a loopback address"),
        ("https://[::ffff:127.0.0.1]/", "127.0.0.1 in ::ffff:127.0.0.1 is a loopback address"),
        ("https://169.254.169.254/latest/meta-data/", "link-local"),
    ],
)
def test_urls_that_are_refused(url: str, error: str) -> None:
    with pytest.raises(ValueError, match=r"^url: ") as raised:
        check_url(url, allow_http=False, allowed=())
    assert error in str(raised.value)
    assert "secret" not in str(raised.value)


def test_urls_that_may_be_used() -> None:
    for url in ("https://example.com/hook?a=1", "https://example.com:8443", "https://1.1.1.1/"):
        check_url(url, allow_http=False, allowed=())
    check_url("http://127.0.0.1:80/", allow_http=True, allowed=networks(["127.0.0.0/8"]))
