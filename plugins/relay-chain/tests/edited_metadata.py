# SPDX-License-Identifier: Apache-2.0
"""The shipped metadata with changes, as other runtimes would have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from relay_world import metadata, runtime
from scalecodec.base import RuntimeConfigurationObject, ScaleBytes  # type: ignore[attr-defined]
from scalecodec.type_registry import load_type_registry_preset
from validator_relay_chain import layout

Edit = Callable[["Parts"], None]

V2 = ("u8", "u16", "u32", "b25", "b32", "b32", "b32", "b64", "b32", "b32")
"""Shapes of a descriptor's fields behind para and relay parent, in version 2 and in version 3."""
V3 = ("u8", "u16", "u32", "u8", "b24", "b32", "b32", "b32", "b32", "b32", "b32", "b32")


class Parts:
    """Types and pallets of metadata V14, as they are encoded."""

    def __init__(self, whole: Any) -> None:
        self.types: list[Any] = whole["types"]["types"]
        self.pallets: dict[str, Any] = {each["name"]: each for each in whole["pallets"]}
        self._made: dict[str, int] = {}

    def type_id(self, shape: str) -> int:
        """Return a new type of a shape: an integer, or ``b`` and a number of bytes."""
        if shape not in self._made:
            made: Any = {"primitive": shape}
            if shape[0] == "b":
                made = {"array": {"len": int(shape[1:]), "type": self.type_id("u8")}}
            self._made[shape] = self.add(made)
        return self._made[shape]

    def add(self, made: Any) -> int:
        """Add a type without a name."""
        self.types.append({"id": len(self.types), "type": {"path": [], "params": [], "def": made, "docs": []}})
        return len(self.types) - 1

    def field(self, name: str, shape: str) -> Any:
        """Return a field."""
        return {"name": name, "type": self.type_id(shape), "typeName": None, "docs": []}


def edited(*edits: Edit) -> bytes:
    """Return the shipped metadata after some edits."""
    config = RuntimeConfigurationObject(implements_scale_info=True)
    config.update_type_registry(load_type_registry_preset("core") or {})
    magic, version = config.create_scale_object("MetadataVersioned", ScaleBytes(metadata())).decode()
    whole = deepcopy(version["V14"])
    parts = Parts(whole)
    for edit in edits:
        edit(parts)
    encoded = config.create_scale_object("MetadataVersioned").encode((magic, {"V14": whole}))
    return bytes(encoded.data)


def descriptor(shapes: Sequence[str], name: str = "Described") -> Edit:
    """Give descriptors other fields behind para and relay parent, and them and their type other names."""

    def edit(parts: Parts) -> None:
        types = runtime()._types
        (at,) = (each for each, found in types.items() if found["path"][-1:] == ["CandidateDescriptor"])
        assert layout.shape(types, at) == layout.DESCRIPTOR
        found = parts.types[at]["type"]
        first = [{**each, "name": f"f{at}"} for at, each in enumerate(found["def"]["composite"]["fields"][:2])]
        more = [parts.field(f"g{at}", shape) for at, shape in enumerate(shapes)]
        found["path"] = ["other_primitives", name]
        found["def"]["composite"]["fields"] = first + more

    return edit


def backing_votes(parts: Parts) -> None:
    """Add the field of the configuration that came with the runtimes 1000000."""
    at = runtime().items["Configuration", "ActiveConfig"]
    parts.types[at]["type"]["def"]["composite"]["fields"].append(parts.field("minimum_backing_votes", "u32"))
