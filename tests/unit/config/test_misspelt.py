# SPDX-License-Identifier: Apache-2.0
"""Each key of each table, with a letter missing, is refused with a suggestion and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest
from pydantic import BaseModel

from validator.config import Config, load_config
from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def keys(model: type[BaseModel], place: str, header: str) -> Iterator[tuple[str, str, str]]:
    """Yield, for each key of a table and of those below it, the place that errors name, the table's header and the key."""
    for name, field in model.model_fields.items():
        if header:
            yield place, header, name
        for kind, is_list, is_mapping in models(field.annotation):
            inner = f"{name}[0]" if is_list else f"{name}.a" if is_mapping else name
            here = f"{place}.{inner}" if place else inner
            path = here.replace("[0]", "")
            yield from keys(kind, here, f"[[{path}]]" if is_list else f"[{path}]")


def models(
    kind: Any, *, is_list: bool = False, is_mapping: bool = False
) -> Iterator[tuple[type[BaseModel], bool, bool]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind, is_list, is_mapping
    origin = getattr(kind, "__origin__", None)
    for part in get_args(kind):
        yield from models(part, is_list=is_list or origin is list, is_mapping=is_mapping or origin is dict)


KEYS = [(place, header, key) for place, header, key in keys(Config, "", "") if len(key) > 3]


def test_every_table_is_there() -> None:
    headers = {header for _, header, _ in KEYS}
    assert {
        "[job]",
        "[chains.a]",
        "[[chains.a.handlers]]",
        "[[chains.a.rules]]",
        "[[chains.a.genesis_paras]]",
    } <= headers


@pytest.mark.parametrize(("place", "header", "key"), KEYS, ids=lambda value: value)
def test_a_misspelt_key_gets_a_suggestion(tmp_path: Path, place: str, header: str, key: str) -> None:
    misspelt = key[:2] + key[3:]
    path = tmp_path / "validator.toml"
    path.write_text(f"{header}\n{misspelt} = 1\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert f": {place}.{misspelt}: no such key; did you mean " in str(caught.value)
