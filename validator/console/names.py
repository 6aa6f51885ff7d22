# SPDX-License-Identifier: Apache-2.0
"""The path of a lane's pages, and how they name its paras and write its amounts.

`names.toml` ships the names of the public chains' paras and their tokens; a lane has those of the chain that it is called after.
`[chains.<lane>.names]` adds to them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Self
from urllib.parse import quote

from validator.sentences import count

FORMS: Final = ("-", "_", ".")
"""What may follow a chain's name in that of a lane, such as ``polkadot-archive``."""


class LaneLink(str):
    """The path of a lane's pages. Pages get their lane's names with it, since each link to a para may show one."""

    __slots__ = ("decimals", "names", "token")
    names: Mapping[int, str]
    token: str
    decimals: int

    def __new__(
        cls, path: str = "", names: Mapping[int, str] = MappingProxyType({}), token: str = "", decimals: int = 0
    ) -> Self:
        link = super().__new__(cls, path)
        link.names, link.token, link.decimals = names, token, decimals
        return link

    @classmethod
    def of(cls, lane: str, own: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Return a lane's link with the names that ship and its ``own`` ones, which are text as TOML has keys."""
        shipped: Mapping[str, Any] = next((table for name, table in _shipped().items() if _is_called(lane, name)), {})
        names = {int(para): name for para, name in {**shipped.get("paras", {}), **own}.items()}
        path = f"/lanes/{quote(lane, safe='')}"
        return cls(path, names, shipped.get("token", ""), shipped.get("decimals", 0))

    def amount(self, value: int) -> str:
        """Return an amount in the lane's token, or in its smallest unit if the token is not known."""
        if not self.token:
            return count(value)
        whole, part = divmod(value, 10**self.decimals)
        digits = f".{part:0{self.decimals}d}".rstrip("0").rstrip(".") if part else ""
        return f"{count(whole)}{digits} {self.token}"

    def called(self, text: str) -> int | None:
        """Return the only para whose name begins with a text, whatever its case; None if it is none or several."""
        wanted = text.casefold()
        exact = [para for para, name in self.names.items() if name.casefold() == wanted]
        found = exact or [para for para, name in self.names.items() if name.casefold().startswith(wanted)]
        return found[0] if len(found) == 1 else None


@cache
def _shipped() -> Mapping[str, Any]:
    return tomllib.loads(files("validator.console").joinpath("names.toml").read_text(encoding="utf-8"))


def _is_called(lane: str, name: str) -> bool:
    return lane == name or lane.startswith(tuple(name + form for form in FORMS))
