# SPDX-License-Identifier: Apache-2.0
"""Channel, profile channel/1: a peer-to-peer protocol of encrypted messages in sessions and topics; `net` is its transport."""

__version__ = "1.0.0"


def form() -> str:
    """Return in words whether the hot modules were compiled by mypyc; the behaviour is the same."""
    from validator_channel import session

    return "pure Python" if str(session.__file__).endswith(".py") else "compiled"
