# SPDX-License-Identifier: Apache-2.0
"""A runtime's metadata: decodes events and a few values of storage, and says whether the rest has the shape that this plugin reads.

The library of codecs knows metadata up to V15. V16 adds associated types, view functions, versions of runtime interfaces, and which items
are deprecated. Source: paritytech/frame-metadata, frame-metadata/src/v16.rs.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from scalecodec.base import RuntimeConfigurationObject, ScaleBytes  # type: ignore[attr-defined]
from scalecodec.type_registry import load_type_registry_preset

from validator_relay_chain import layout
from validator_relay_chain.errors import FollowError, UndecodableBlock
from validator_relay_chain.event_scan import RECEIPT_BYTES, EventScanner
from validator_relay_chain.hashing import blake2b_256
from validator_relay_chain.limits import METADATA_BYTES_MAX

LANE_PALLETS: Final = ("Hrmp", "ParaInclusion", "Session")
"""Pallets whose events a lane needs."""
MAGIC: Final = b"meta"
VERSIONS: Final = (14, 15, 16)
"""Of the format, which are read."""


IN_PYTHON: Final = ("*::vote::Vote", "pallet_identity::types::Data")
"""Types for which the library has classes in Python. One of them among a runtime's events puts all events on its slow path, which takes 60
times as long. Nothing here reads their values, so they are decoded by their parts, as the metadata describes them."""


class Event(NamedTuple):
    """An event of a block. Fields stand in the order of the metadata, in the library's form: hashes and bytes are hex with 0x."""

    pallet: str
    name: str
    fields: tuple[Any, ...]
    phase: str
    """``Initialization``, ``ApplyExtrinsic`` or ``Finalization``."""


class CandidateEvent(NamedTuple):
    """An event whose first field is a candidate: ``receipt`` are its descriptor and the hash of its commitments, encoded."""

    pallet: str
    name: str
    receipt: bytes


class Call(NamedTuple):
    """The indices of a call."""

    pallet: int
    call: int


def is_readable(metadata: bytes) -> bool:
    """Return whether bytes begin as metadata of a version that this plugin reads."""
    return metadata[:4] == MAGIC and len(metadata) > 4 and metadata[4] in VERSIONS


class Runtime:
    """The metadata of one runtime version. Raises `UndecodableBlock` if it is not metadata, or one that this plugin cannot read."""

    def __init__(self, spec_name: str, spec_version: int, metadata: bytes, *, extrinsics_version: int = 0) -> None:
        self.spec_name = spec_name
        self.spec_version = spec_version
        self.extrinsics_version = extrinsics_version
        """State version of the extrinsics root."""
        if not is_readable(metadata):
            raise self._error(f"expected metadata V14, V15 or V16, found bytes that begin with 0x{metadata[:5].hex()}")
        if len(metadata) > METADATA_BYTES_MAX:
            raise self._error(f"expected metadata of at most {METADATA_BYTES_MAX} bytes, found {len(metadata)}")
        try:
            self._load(metadata)
        except UndecodableBlock:
            raise
        except Exception as error:
            raise self._error(f"its metadata does not decode: {type(error).__name__}: {error}") from error

    def __repr__(self) -> str:
        return f"{self.spec_name} {self.spec_version}"

    def events(self, raw: bytes) -> list[Event]:
        """Return the events of ``System.Events``. Raises `UndecodableBlock` unless they decode to the last byte."""
        try:
            decoded = self._decode(self._events_type, raw)
            return [self._event(each) for each in decoded]
        except Exception as error:  # the library has no common root of its errors
            raise self._error(f"an event does not decode: {type(error).__name__}: {error}") from error

    def lane_events(self, raw: bytes) -> list[Event | CandidateEvent]:
        """Return the events of `LANE_PALLETS`, candidates as bytes where they have the usual shape. Raises as `events` does."""
        found = None if self._scanner is None else self._scanner.scan(raw)
        if found is None:
            return [event for event in self.events(raw) if event.pallet in LANE_PALLETS]
        return [
            CandidateEvent(each.pallet, each.name, raw[each.fields : each.fields + RECEIPT_BYTES])
            if each.has_receipt
            else self._one_event(raw[each.start : each.end])
            for each in found
        ]

    @cached_property
    def _scanner(self) -> EventScanner | None:
        try:
            return EventScanner(self._types, self._events_type, LANE_PALLETS)
        except (LookupError, TypeError, ValueError):
            return None

    @property
    def has_fast_events(self) -> bool:
        """Whether the library decodes events in native code."""
        return self._config.get_value_decoder(f"scale_info::{self._events_type}") is not None

    def value(self, pallet: str, item: str, raw: bytes) -> Any:
        """Return a value of storage in the library's form. Raises `UndecodableBlock`."""
        type_id = self.items.get((pallet, item))
        if type_id is None:
            raise self._error(f"it has no storage item {pallet}.{item}")
        try:
            return self._decode(type_id, raw)
        except Exception as error:
            raise self._error(f"{pallet}.{item} does not decode: {type(error).__name__}: {error}") from error

    def has(self, pallet: str, item: str) -> bool:
        """Return whether the runtime has a storage item."""
        return (pallet, item) in self.items

    def has_call(self, pallet: str, call: str) -> bool:
        """Return whether the runtime has a call."""
        return (pallet, call) in self._calls

    def constant(self, pallet: str, name: str) -> bytes | None:
        """Return the value of a constant, encoded, or None if the metadata does not show it."""
        return self._constants.get((pallet, name))

    @cached_property
    def enter(self) -> bytes:
        """The bytes that the call ``ParaInherent.enter`` begins with: pallet and call."""
        found = self._calls.get(("ParaInherent", "enter"))
        if found is None:
            raise self._error("it has no call ParaInherent.enter")
        return bytes(found)

    @cached_property
    def configuration_fields(self) -> tuple[str, ...]:
        """The names of the fields of ``Configuration.ActiveConfig``; none if it has none."""
        found = self._types.get(self.items.get(("Configuration", "ActiveConfig"), -1), {"def": {}})
        return tuple(field["name"] for field in found["def"].get("composite", {}).get("fields", ()))

    def check_seeded(self) -> None:
        """Raise `UndecodableBlock` for the first storage item that a lane needs to join and that this plugin cannot read."""
        for name, reason in self.unread.items():
            raise self._error(f"{name}: {reason}: a lane cannot join the chain under it")

    def _load(self, raw: bytes) -> None:
        config = RuntimeConfigurationObject(implements_scale_info=True)
        config.update_type_registry(with_v16(_preset()))
        metadata = config.create_scale_object("MetadataVersioned", ScaleBytes(raw))
        metadata.decode()
        config.add_portable_registry(metadata)
        self._config = config
        registry: Any = metadata.portable_registry
        self._types: dict[int, Any] = {each["id"]: each["type"] for each in registry.value["types"]}
        self.items: dict[tuple[str, str], int] = {}
        """The type of each storage item's values."""
        self._calls: dict[tuple[str, str], Call] = {}
        self._constants: dict[tuple[str, str], bytes] = {}
        for pallet in metadata.pallets:
            name, index = pallet.value["name"], pallet.value["index"]
            for item in pallet.storage or ():
                text = item.get_value_type_string()
                if text.startswith("scale_info::"):
                    self.items[name, item.value["name"]] = int(text.removeprefix("scale_info::"))
            for constant in pallet.constants or ():
                self._constants[name, constant.value["name"]] = bytes(constant.constant_value)
            if pallet.value["calls"] is not None:
                for call in self._types[pallet.value["calls"]["ty"]]["def"]["variant"]["variants"]:
                    self._calls[name, call["name"]] = Call(index, call["index"])
                    if (name, call["name"]) == ("ParaInherent", "enter"):
                        self._check_inherent(call["fields"][0]["type"])
        for place in (("System", "Events"), ("Configuration", "ActiveConfig")):
            if place in self.items:
                layout.check_bounded(self._types, self.items[place])
        self._check_storage()
        self.has_signals = layout.has_signals(self._types)
        """Whether an empty upward message ends the messages of a candidate."""
        self.has_scheduling_parents = layout.has_scheduling_parents(self._types)
        """Whether the relay parent of a candidate may be of an earlier session."""
        self._events_type = self.items["System", "Events"]
        self._arity = self._arities()

    def _check_storage(self) -> None:
        self.has_downward_pages = all(place in self.items for place in layout.DOWNWARD_PAGES)
        """Whether downward queues have pages; what is not moved yet is still in `layout.DOWNWARD`, which metadata may not name."""
        queues = layout.DOWNWARD_PAGES if self.has_downward_pages else layout.DOWNWARD
        needed = (*queues, *layout.FOLLOWED)
        for place in needed:
            if place not in self.items:
                raise self._error(
                    f"it has no storage item {'.'.join(place)}: this plugin does not know such a relay chain"
                )
        unread = {".".join(place): "it is not there" for place in layout.SEEDED if place not in self.items}
        for place, expected in layout.STORAGE.items():
            if place not in self.items:
                continue
            try:
                self._check(".".join(place), self.items[place], expected)
            except (UndecodableBlock, LookupError, TypeError, ValueError) as error:
                if place in needed:
                    raise
                unread[".".join(place)] = str(error)
        self.unread: Mapping[str, str] = unread
        """Storage items that a lane that follows can do without, and why this plugin does not read them."""

    def _check_inherent(self, type_id: int) -> None:
        bitfields, backed = self._types[type_id]["def"]["composite"]["fields"][:2]
        self._check("ParaInherent.enter: bitfields", bitfields["type"], layout.BITFIELDS)
        self._check("ParaInherent.enter: backed candidates", backed["type"], layout.BACKED)

    def _check(self, what: str, type_id: int, expected: str) -> None:
        found = layout.shape(self._types, type_id)
        if found != expected:
            raise self._error(f"{what}: expected the shape {expected}, found {found}")

    def _arities(self) -> dict[tuple[str, str], int]:
        """Return how many fields each event has: the library gives a single one without a list around it."""
        record = self._types[self._types[self._events_type]["def"]["sequence"]["type"]]
        outer = next(field["type"] for field in record["def"]["composite"]["fields"] if field["name"] == "event")
        found = {}
        for pallet in self._types[outer]["def"]["variant"]["variants"]:
            for event in self._types[pallet["fields"][0]["type"]]["def"]["variant"]["variants"]:
                found[pallet["name"], event["name"]] = len(event["fields"])
        return found

    def _one_event(self, raw: bytes) -> Event:
        (event,) = self.events(b"\x04" + raw)
        return event

    def _event(self, record: dict[str, Any]) -> Event:
        pallet, name, given = record["module_id"], record["event_id"], record["attributes"]
        arity = self._arity[pallet, name]
        if arity == 0:
            fields: tuple[Any, ...] = ()
        elif isinstance(given, dict) and len(given) == arity and arity > 1:
            fields = tuple(given.values())
        elif arity == 1:
            fields = (given,)
        else:
            fields = tuple(given)
        if arity > 1 and len(fields) != arity:
            raise ValueError(f"{pallet}.{name}: expected {arity} fields, found {len(fields)}")
        return Event(pallet, name, fields, record["phase"])

    def _decode(self, type_id: int, raw: bytes) -> Any:
        text = f"scale_info::{type_id}"
        decode = self._config.get_value_decoder(text)
        if decode is not None:
            return decode(raw)
        return self._config.create_scale_object(text, ScaleBytes(raw)).decode()

    def _error(self, text: str) -> UndecodableBlock:
        return UndecodableBlock(f"runtime {self.spec_name} {self.spec_version}: {text}")


def _preset() -> dict[str, Any]:
    """Return the library's types for metadata, without those of `IN_PYTHON`."""
    preset = load_type_registry_preset("core") or {}
    return preset | {"types": {name: each for name, each in preset["types"].items() if name not in IN_PYTHON}}


def _struct(*fields: tuple[str, str], base: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "struct", "type_mapping": [list(field) for field in fields]}
    return found if base is None else found | {"base_class": base}


_DEPRECATED: Final = ("deprecation_info", "ItemDeprecationInfoV16")
_VARIANTS_DEPRECATED: Final = ("deprecation_info", "Vec<VariantDeprecationInfoV16>")
_NAME: Final = ("name", "Text")
_DOCS: Final = ("docs", "Vec<Text>")
_TYPE: Final = ("ty", "SiLookupTypeId")

_KINDS_OF_DEPRECATION: Final = {
    "type": "enum",
    "type_mapping": [
        ["NotDeprecated", "Null"],
        ["DeprecatedWithoutNote", "Null"],
        ["Deprecated", "DeprecationNoteV16"],
    ],
}

TYPES: Final[dict[str, Any]] = {
    "MetadataV16": _struct(
        ("types", "PortableRegistry"),
        ("pallets", "Vec<PalletMetadataV16>"),
        ("extrinsic", "ExtrinsicMetadataV16"),
        ("apis", "Vec<RuntimeApiMetadataV16>"),
        ("outer_enums", "OuterEnumsMetadataV15"),
        ("custom", "CustomMetadataV15"),
    ),
    "PalletMetadataV16": _struct(
        _NAME,
        ("storage", "Option<StorageMetadataV16>"),
        ("calls", "Option<PalletCallMetadataV16>"),
        ("event", "Option<PalletEventMetadataV16>"),
        ("constants", "Vec<PalletConstantMetadataV16>"),
        ("error", "Option<PalletErrorMetadataV16>"),
        ("associated_types", "Vec<PalletAssociatedTypeMetadataV16>"),
        ("view_functions", "Vec<PalletViewFunctionMetadataV16>"),
        ("index", "u8"),
        _DOCS,
        _DEPRECATED,
        base="ScaleInfoPalletMetadata",
    ),
    "StorageMetadataV16": _struct(("prefix", "Text"), ("entries", "Vec<StorageEntryMetadataV16>")),
    "StorageEntryMetadataV16": _struct(
        _NAME,
        ("modifier", "StorageEntryModifierV13"),
        ("type", "StorageEntryTypeV14"),
        ("default", "Bytes"),
        ("documentation", "Vec<Text>"),
        _DEPRECATED,
        base="ScaleInfoStorageEntryMetadata",
    ),
    "PalletCallMetadataV16": _struct(_TYPE, _VARIANTS_DEPRECATED, base="ScaleInfoCallMetadata"),
    "PalletEventMetadataV16": _struct(_TYPE, _VARIANTS_DEPRECATED, base="ScaleInfoPalletEventMetadata"),
    "PalletErrorMetadataV16": _struct(_TYPE, _VARIANTS_DEPRECATED, base="ScaleInfoPalletErrorMetadata"),
    "PalletConstantMetadataV16": _struct(
        _NAME,
        ("type", "SiLookupTypeId"),
        ("value", "Bytes"),
        ("documentation", "Vec<Text>"),
        _DEPRECATED,
        base="ScaleInfoModuleConstantMetadata",
    ),
    "PalletAssociatedTypeMetadataV16": _struct(_NAME, _TYPE, _DOCS),
    "PalletViewFunctionMetadataV16": _struct(
        ("id", "[u8; 32]"),
        _NAME,
        ("inputs", "Vec<RuntimeApiMethodParamMetadataV15>"),
        ("output", "SiLookupTypeId"),
        _DOCS,
        _DEPRECATED,
    ),
    "ExtrinsicMetadataV16": _struct(
        ("versions", "Bytes"),
        ("address_ty", "SiLookupTypeId"),
        (
            "ty",
            "SiLookupTypeId",
        ),  # of calls; the library looks for this name where a registry has no type of extrinsics
        ("signature_ty", "SiLookupTypeId"),
        ("transaction_extensions_by_version", "Vec<ExtensionsOfVersionV16>"),
        ("transaction_extensions", "Vec<SignedExtensionMetadataV14>"),
    ),
    "ExtensionsOfVersionV16": _struct(("version", "u8"), ("extensions", "Vec<Compact<u32>>")),
    "RuntimeApiMetadataV16": _struct(
        _NAME,
        ("methods", "Vec<RuntimeApiMethodMetadataV16>"),
        _DOCS,
        ("version", "Compact<u32>"),
        _DEPRECATED,
    ),
    "RuntimeApiMethodMetadataV16": _struct(
        _NAME,
        ("inputs", "Vec<RuntimeApiMethodParamMetadataV15>"),
        ("output", "SiLookupTypeId"),
        _DOCS,
        _DEPRECATED,
    ),
    "DeprecationNoteV16": _struct(("note", "Text"), ("since", "Option<Text>")),
    "ItemDeprecationInfoV16": _KINDS_OF_DEPRECATION,
    "VariantDeprecationInfoV16": _struct(("variant", "u8"), ("how", "ItemDeprecationInfoV16")),
}
"""In the library's notation. What is as in V14 and V15 has its name of there."""


def with_v16(preset: dict[str, Any]) -> dict[str, Any]:
    """Return the library's types with those of V16."""
    types = preset["types"]
    versions = types["MetadataAll"]
    listed = [each for each in versions["type_mapping"] if each[0] != "V16"]
    return preset | {
        "types": types | TYPES | {"MetadataAll": versions | {"type_mapping": [*listed, ["V16", "MetadataV16"]]}}
    }


HASH_BYTES: Final = 32
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_-]")


class MetadataCache:
    """A folder of files ``<genesis>/<spec name>-<spec version>.metadata``: BLAKE2b-256 of the metadata, then the metadata with zlib."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, genesis: bytes, spec_name: str, spec_version: int) -> bytes | None:
        """Return the metadata of a runtime, or None."""
        try:
            kept = self._path(genesis, spec_name, spec_version).read_bytes()
            unpack = zlib.decompressobj()
            metadata = unpack.decompress(kept[HASH_BYTES:], METADATA_BYTES_MAX + 1)
        except (OSError, zlib.error):
            return None
        return metadata if unpack.eof and blake2b_256(metadata) == kept[:HASH_BYTES] else None

    def write(self, genesis: bytes, spec_name: str, spec_version: int, metadata: bytes) -> None:
        """Keep the metadata of a runtime. Raises `FollowError` if the folder cannot be written."""
        path = self._path(genesis, spec_name, spec_version)
        new = path.with_suffix(".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(blake2b_256(metadata) + zlib.compress(metadata))
            new.replace(path)
        except OSError as error:
            raise FollowError(f"{path}: cannot be written: {error.strerror}") from error

    def _path(self, genesis: bytes, spec_name: str, spec_version: int) -> Path:
        return self._folder / genesis.hex()[:16] / f"{_PLAIN.sub('_', spec_name)}-{spec_version}.metadata"
