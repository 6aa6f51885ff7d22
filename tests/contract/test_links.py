# SPDX-License-Identifier: Apache-2.0
"""A link passes everything on, holds it without closing anything, and lets either end know that the other one has closed."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.links import HOST, Link, Links
from validator.kafka.broker import _free_ports

WAIT_S = 30.0
HELD_S = 0.3
LINKED = "127.0.9.1"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((HOST, _free_ports(None)[0])) as listening:
        listening.settimeout(WAIT_S)
        yield listening


def connected(link: Link) -> socket.socket:
    return socket.create_connection((link.host, link.port), timeout=WAIT_S)


def test_both_directions_pass_and_the_end_of_one_side_reaches_the_other(server: socket.socket) -> None:
    link = Link(LINKED, server.getsockname()[1])
    with Links([link]), connected(link) as client:
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(WAIT_S)
            client.sendall(b"to")
            assert accepted.recv(2) == b"to"
            accepted.sendall(b"back")
            assert client.recv(4) == b"back"
            client.close()
            assert accepted.recv(1) == b""


def test_a_held_link_passes_nothing_until_it_is_released(server: socket.socket) -> None:
    link = Link(LINKED, server.getsockname()[1])
    with Links([link]), connected(link) as client:
        accepted, _ = server.accept()
        with accepted:
            link.held = True
            client.sendall(b"late")
            accepted.settimeout(HELD_S)
            with pytest.raises(TimeoutError):
                accepted.recv(1)
            client.close()
            with pytest.raises(TimeoutError):
                accepted.recv(1)
            link.held = False
            accepted.settimeout(WAIT_S)
            assert accepted.recv(4) == b"late"
            assert accepted.recv(1) == b""


def test_a_link_to_nothing_resets_its_connections() -> None:
    link = Link(LINKED, _free_ports(None)[0])
    with (
        Links([link]),
        pytest.raises(ConnectionResetError),
        connected(link) as client,
    ):
        client.recv(1)
