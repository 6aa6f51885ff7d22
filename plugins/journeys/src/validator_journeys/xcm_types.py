# SPDX-License-Identifier: Apache-2.0
"""The SCALE types of XCM versions 2 to 5 as data, and the reader that walks them.

A type is a text: the types of its fields, separated by spaces. ``T*`` is a row, ``T?`` an option, ``cN`` a compact integer that fits
N bytes, ``uN`` an integer of N bytes, ``bN`` N bytes. The variants of an enumeration are a mapping by index, or a tuple that counts
from 0; a variant is its name and the types of its fields. Facts from the public definition of XCM (polkadot-sdk, ``polkadot/xcm``)
and from the metadata of Polkadot's runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from validator.plugin.protocol_api import DecodeError

Type: TypeAlias = str | tuple[str, ...] | Mapping[int, str]


class Limits(NamedTuple):
    """What one XCM may hold; equal to or above the limits of the runtimes that decode it."""

    depth: int = 8
    """XCMs nested in each other, the outermost included. A location has at most 8 junctions by its type."""
    instructions: int = 100
    """Instructions, nested ones included."""
    items: int = 100
    """Items of a row: assets, pallets, hints."""
    payload_bytes: int = 1 << 20
    """Bytes of one payload."""
    messages: int = 1000
    """XCMs or blobs in one payload."""
    assets: int = 20
    """Assets that a summary names."""
    key_bytes: int = 32
    """Bytes of a key that a summary shows: version 2 has keys of any length."""


LIMITS = Limits()

BODY_IDS = (
    "Unit",
    "Moniker b4",
    "Index c4",
    "Executive",
    "Technical",
    "Legislative",
    "Judicial",
    "Defense",
    "Administration",
    "Treasury",
)
JUNCTIONS = (
    "Parachain c4",
    "AccountId32 Network b32",
    "AccountIndex64 Network c8",
    "AccountKey20 Network b20",
    "PalletInstance u1",
    "GeneralIndex c16",
    "GeneralKey u1 b32",
    "OnlyChild",
    "Plurality BodyId BodyPart",
    "GlobalConsensus NetworkId",
)
# The numbers of errors matter for their fields alone: a summary does not name them.
ERRORS = tuple(f"Error{index} u8" if index == 21 else f"Error{index}" for index in range(22))

V2: dict[str, Type] = {
    "NetworkId": ("Any", "Named bytes", "Polkadot", "Kusama"),
    "Network": "NetworkId",
    "BodyId": (BODY_IDS[0], "Named bytes", *BODY_IDS[2:]),
    "BodyPart": ("Voice", "Members c4", "Fraction c4 c4", "AtLeastProportion c4 c4", "MoreThanProportion c4 c4"),
    "Junction": (*JUNCTIONS[:6], "GeneralKey bytes", *JUNCTIONS[7:9]),
    "Interior": ("Here", *(f"X{count}" + " Junction" * count for count in range(1, 9))),
    "Location": "u1 Interior",
    "AssetId": ("Concrete Location", "Abstract bytes"),
    "Instance": ("Undefined", "Index c16", "Array4 b4", "Array8 b8", "Array16 b16", "Array32 b32", "Blob bytes"),
    "Fungibility": ("Fungible c16", "NonFungible Instance"),
    "Asset": "AssetId Fungibility",
    "Assets": "Asset*",
    "WildFungibility": ("Fungible", "NonFungible"),
    "WildAsset": ("All", "AllOf AssetId WildFungibility"),
    "AssetFilter": ("Definite Assets", "Wild WildAsset"),
    "OriginKind": ("Native", "SovereignAccount", "Superuser", "Xcm"),
    "WeightLimit": ("Unlimited", "Limited c8"),
    "Error": (*ERRORS, "UnhandledXcmVersion", "WeightLimitReached u8", "Barrier", "WeightNotComputable"),
    "ErrorAt": "u4 Error",
    "Response": ("Null", "Assets Assets", "ExecutionResult ErrorAt?", "Version u4"),
    "Instruction": (
        "WithdrawAsset Assets",
        "ReserveAssetDeposited Assets",
        "ReceiveTeleportedAsset Assets",
        "QueryResponse c8 Response c8",
        "TransferAsset Assets Location",
        "TransferReserveAsset Assets Location Xcm",
        "Transact OriginKind c8 bytes",
        "HrmpNewChannelOpenRequest c4 c4 c4",
        "HrmpChannelAccepted c4",
        "HrmpChannelClosing c4 c4 c4",
        "ClearOrigin",
        "DescendOrigin Interior",
        "ReportError c8 Location c8",
        "DepositAsset AssetFilter c4 Location",
        "DepositReserveAsset AssetFilter c4 Location Xcm",
        "ExchangeAsset AssetFilter Assets",
        "InitiateReserveWithdraw AssetFilter Location Xcm",
        "InitiateTeleport AssetFilter Location Xcm",
        "QueryHolding c8 Location AssetFilter c8",
        "BuyExecution Asset WeightLimit",
        "RefundSurplus",
        "SetErrorHandler Xcm",
        "SetAppendix Xcm",
        "ClearError",
        "ClaimAsset Assets Location",
        "Trap c8",
        "SubscribeVersion c8 c8",
        "UnsubscribeVersion",
    ),
}


def changed(types: tuple[str, ...], *changes: str) -> tuple[str, ...]:
    """Return the variants with each one that a change names replaced."""
    by_name = {change.split()[0]: change for change in changes}
    return tuple(by_name.get(variant.split()[0], variant) for variant in types)


NETWORK_IDS = (
    *("ByGenesis b32", "ByFork u8 b32", "Polkadot", "Kusama", "Westend", "Rococo", "Wococo", "Ethereum c8"),
    *("BitcoinCore", "BitcoinCash", "PolkadotBulletin"),
)
V3_ERRORS = (*ERRORS, *(f"Error{index}" for index in range(22, 35)))
OUTSIDE_ERRORS = (
    "UnhandledXcmVersion",
    "WeightLimitReached Weight",
    "Barrier",
    "WeightNotComputable",
    "ExceedsStackLimit",
)
V3_INSTRUCTIONS = (
    *changed(
        V2["Instruction"],  # type: ignore[arg-type]
        "QueryResponse c8 Response Weight Location?",
        "Transact OriginKind Weight bytes",
        "ReportError ResponseInfo",
        "DepositAsset AssetFilter Location",
        "DepositReserveAsset AssetFilter Location Xcm",
        "ExchangeAsset AssetFilter Assets bool",
        "SubscribeVersion c8 Weight",
        "QueryHolding ResponseInfo AssetFilter",
    ),
    "BurnAsset Assets",
    "ExpectAsset Assets",
    "ExpectOrigin Location?",
    "ExpectError ErrorAt?",
    "ExpectTransactStatus MaybeError",
    "QueryPallet bytes ResponseInfo",
    "ExpectPallet c4 bytes bytes c4 c4",
    "ReportTransactStatus ResponseInfo",
    "ClearTransactStatus",
    "UniversalOrigin Junction",
    "ExportMessage NetworkId Interior Xcm",
    "LockAsset Asset Location",
    "UnlockAsset Asset Location",
    "NoteUnlockable Asset Location",
    "RequestUnlock Asset Location",
    "SetFeesMode bool",
    "SetTopic b32",
    "ClearTopic",
    "AliasOrigin Location",
    "UnpaidExecution WeightLimit Location?",
)
V3: dict[str, Type] = V2 | {
    "NetworkId": NETWORK_IDS,
    "Network": "NetworkId?",
    "BodyId": BODY_IDS,
    "Junction": JUNCTIONS,
    "AssetId": ("Concrete Location", "Abstract b32"),
    "Instance": ("Undefined", "Index c16", "Array4 b4", "Array8 b8", "Array16 b16", "Array32 b32"),
    "WildAsset": ("All", "AllOf AssetId WildFungibility", "AllCounted c4", "AllOfCounted AssetId WildFungibility c4"),
    "Weight": "c8 c8",
    "WeightLimit": ("Unlimited", "Limited Weight"),
    "Error": (*V3_ERRORS, *OUTSIDE_ERRORS),
    "MaybeError": ("Success", "Error bytes", "TruncatedError bytes"),
    "PalletInfo": "c4 bytes bytes c4 c4 c4",
    "Response": (
        *("Null", "Assets Assets", "ExecutionResult ErrorAt?", "Version u4"),
        *("PalletsInfo PalletInfo*", "DispatchResult MaybeError"),
    ),
    "ResponseInfo": "Location c8 Weight",
    "Instruction": tuple(text.replace("QueryHolding", "ReportHolding") for text in V3_INSTRUCTIONS),
}
V4: dict[str, Type] = V3 | {"AssetId": "Location"}
V5_NETWORK_IDS: Mapping[int, str] = {index: text for index, text in enumerate(NETWORK_IDS) if index not in {4, 5, 6}}
V5: dict[str, Type] = {
    **V4,
    "NetworkId": V5_NETWORK_IDS,
    "Error": (*V3_ERRORS, "TooManyAssets", *OUTSIDE_ERRORS),
    "TransferFilter": ("Teleport AssetFilter", "ReserveDeposit AssetFilter", "ReserveWithdraw AssetFilter"),
    "Hint": ("AssetClaimer Location",),
    "Instruction": (
        *changed(V3["Instruction"], "Transact OriginKind Weight? bytes"),  # type: ignore[arg-type]
        "PayFees Asset",
        "InitiateTransfer Location TransferFilter? bool TransferFilter* Xcm",
        "ExecuteWithOrigin Interior? Xcm",
        "SetHints Hint*",
    ),
}


class Cursor:
    """Reads one payload: where it is, and what the XCM that it reads has used of its limits."""

    __slots__ = ("calls", "data", "depth", "instructions", "names", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.depth = self.instructions = 0
        self.names: list[str] = []
        self.calls: list[int] = []

    def take(self, size: int) -> bytes:
        """Take ``size`` bytes."""
        start = self.position
        taken = self.data[start : start + size]
        if len(taken) != size:
            raise DecodeError(f"offset {start}: {size} bytes expected, {len(self.data) - start} left")
        self.position = start + size
        return taken

    def byte(self) -> int:
        """Take one byte."""
        position = self.position
        if position >= len(self.data):
            raise DecodeError(f"offset {position}: 1 byte expected, 0 left")
        self.position = position + 1
        return self.data[position]

    def compact(self, size_max: int = 4) -> int:
        """Take a compact integer in its shortest form that fits ``size_max`` bytes."""
        start = self.position
        if start >= len(self.data):
            raise DecodeError(f"offset {start}: 1 byte expected, 0 left")
        first = self.data[start]
        self.position = start + 1
        mode = first & 3
        if mode == 0:
            return first >> 2
        if mode == 3:
            size = (first >> 2) + 4
            value = int.from_bytes(self.take(min(size, size_max + 1)), "little")
            least = 1 << 30 if size == 4 else 1 << (8 * (size - 1))
        else:
            value = int.from_bytes(bytes((first,)) + self.take(1 if mode == 1 else 3), "little") >> 2
            least = 1 << 6 if mode == 1 else 1 << 14
        if value >> (8 * size_max):
            raise DecodeError(f"offset {start}: compact integer above {size_max} bytes")
        if value < least:
            raise DecodeError(f"offset {start}: compact integer not in its shortest form")
        return value

    def blob(self) -> bytes:
        """Take a length and that many bytes."""
        return self.take(self.compact())


Read: TypeAlias = Callable[[Cursor], Any]


def reader_of(types: Mapping[str, Type]) -> Read:
    """Return the reader of an XCM of these types, which gives its instructions: each a tuple of its name and its fields.

    It raises `DecodeError`, with the offset, for bytes that are no XCM or exceed `LIMITS`.
    """
    made: dict[str, Read] = {"bytes": Cursor.blob, "u1": Cursor.byte, "bool": _boolean}

    def find(name: str) -> Read:
        if name not in made:
            made[name] = make(name)
        return made[name]

    def make(name: str) -> Read:
        if name[-1] == "*":
            return _row(find(name[:-1]))
        if name[-1] == "?":
            return _option(find(name[:-1]))
        if name not in types:
            size = int(name[1:])
            if name[0] == "b":
                return lambda cursor: cursor.take(size)
            if name[0] == "c":
                return lambda cursor: cursor.compact(size)
            return lambda cursor: int.from_bytes(cursor.take(size), "little")
        kind = types[name]
        if isinstance(kind, str):
            fields = tuple(map(find, kind.split()))
            return fields[0] if len(fields) == 1 else _fields(fields)
        return _choice(name, kind.items() if isinstance(kind, Mapping) else enumerate(kind), find)

    instructions: list[Read] = []

    def xcm(cursor: Cursor) -> list[Any]:
        start = cursor.position
        count = cursor.compact()
        cursor.instructions += count
        cursor.depth += 1
        if cursor.instructions > LIMITS.instructions:
            raise DecodeError(f"offset {start}: more than {LIMITS.instructions} instructions")
        if cursor.depth > LIMITS.depth:
            raise DecodeError(f"offset {start}: more than {LIMITS.depth} nested XCMs")
        outermost = cursor.depth == 1
        read = instructions[0]
        found = []
        for _ in range(count):
            instruction = read(cursor)
            if instruction[0] == "Transact":
                cursor.calls.append(len(instruction[3]))
            if outermost:
                cursor.names.append(instruction[0])
            found.append(instruction)
        cursor.depth -= 1
        return found

    made["Xcm"] = xcm
    instructions.append(find("Instruction"))
    return xcm


def _boolean(cursor: Cursor) -> bool:
    value = cursor.byte()
    if value > 1:
        raise DecodeError(f"offset {cursor.position - 1}: {value} instead of 0 or 1")
    return value == 1


def _option(read: Read) -> Read:
    return lambda cursor: read(cursor) if _boolean(cursor) else None


def _fields(reads: tuple[Read, ...]) -> Read:
    if len(reads) == 2:
        first, second = reads
        return lambda cursor: (first(cursor), second(cursor))
    return lambda cursor: tuple([read(cursor) for read in reads])


def _row(read: Read) -> Read:
    def row(cursor: Cursor) -> list[Any]:
        start = cursor.position
        count = cursor.compact()
        if count > LIMITS.items:
            raise DecodeError(f"offset {start}: {count} items, at most {LIMITS.items}")
        return [read(cursor) for _ in range(count)]

    return row


def _choice(name: str, variants: Any, find: Callable[[str], Read]) -> Read:
    table: dict[int, tuple[tuple[str], tuple[Read, ...], Read | None]] = {}
    for index, text in variants:
        variant, *fields = text.split()
        reads = tuple(map(find, fields))
        table[index] = ((variant,), reads, reads[0] if len(reads) == 1 else None)

    def choice(cursor: Cursor) -> tuple[Any, ...]:
        position = cursor.position
        data = cursor.data
        if position >= len(data):
            raise DecodeError(f"offset {position}: 1 byte expected, 0 left")
        found = table.get(data[position])
        if found is None:
            raise DecodeError(f"offset {position}: no {name} has index {data[position]}")
        cursor.position = position + 1
        head, reads, only = found
        if only is not None:
            return (head[0], only(cursor))
        return head + tuple([read(cursor) for read in reads]) if reads else head

    return choice


READERS: Mapping[int, Read] = {version: reader_of(types) for version, types in ((2, V2), (3, V3), (4, V4), (5, V5))}
"""The reader of an XCM of each version."""
