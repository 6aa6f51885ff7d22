# SPDX-License-Identifier: Apache-2.0
"""Addresses as people write them."""

from __future__ import annotations

import re
from typing import Final

PORT_MAX: Final = 65_535
_ADDRESS: Final = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]\s]+)):([0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; an IPv6 address stands in brackets. Raises ``ValueError``."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > PORT_MAX:
        raise ValueError(f"expected HOST:PORT, found {text!r}")
    return found[1] or found[2], int(found[3])
