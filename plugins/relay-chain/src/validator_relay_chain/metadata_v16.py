# SPDX-License-Identifier: Apache-2.0
"""The types of metadata V16, which the library of codecs lacks: it knows them up to V15.

V16 adds to V15 associated types, view functions, versions of runtime interfaces, and which items are deprecated.
Source: paritytech/frame-metadata, frame-metadata/src/v16.rs.
"""

from __future__ import annotations

from typing import Any, Final


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
