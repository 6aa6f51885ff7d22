# SPDX-License-Identifier: Apache-2.0
"""Makes the recording that the mock node ships, from ../shared/data: ``python plugins/relay-chain/tests/make_shipped.py FOLDER``.

Blocks are copied as they stand. Of the metadata only what decodes them is kept: the types that events, `ParaInherent.enter` and the storage
of this plugin need. Storage is made up as `validator_simulators.relay_chain.made` says, from channels and configuration that are recorded
and proven at an earlier block. The same input gives the same content; the compressed bytes depend on the version of liblzma.

Source: test fixtures of github.com/sodazone/ocelloids-services (fdf6b47b92 and its history) and github.com/polkadot-js/api (f49f05c820,
metadata 9430), both Apache-2.0.
"""

from __future__ import annotations

import gzip
import json
import lzma
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scalecodec.base import RuntimeConfigurationObject, ScaleBytes
from scalecodec.type_registry import load_type_registry_preset
from validator_relay_chain import keys, layout
from validator_relay_chain.header import to_hex
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.storage import Queued, decode_channel
from validator_simulators.relay_chain.made import PARACHAIN, MadeState, link, make_up_storage
from validator_simulators.relay_chain.recording import Recording

DATA: Final = Path(__file__).resolve().parents[4] / "shared" / "data" / "rpc" / "polkadot"
RUN: Final = "17844552-17844571.jsonl.gz"
JOINED: Final = 17_844_552
"""The block after which a lane joins: its header alone is shipped."""
LAST: Final = 17_844_556
SNAPSHOT: Final = 17_837_577
"""The block whose recorded storage has channels of para 1000."""
CONFIGURED: Final = 18_840_275, 1_000_001
"""A block whose recorded storage has the configuration, and its runtime. No recorded metadata has the layout that `SNAPSHOT` has it in."""
UNRECORDED_DOWNWARD: Final = (2000, 17_844_551, b"not recorded")
"""A message that a candidate of 17844553 processed: para, the block that sent it, and a payload that is made up."""
USED_CHANNELS: Final = ((2004, 2034), (2000, 2012), (1000, 2004))
"""Channels that candidates of the run use."""
SPEC_VERSION: Final = 9430
RULES_ITEMS: Final = (("Dmp", "DeliveryFeeFactor"), ("MessageQueue", "BookStateFor"))
"""Storage items that show which rules a runtime has, with the calls of `Hrmp`."""

Json = dict[str, Any]
References = Iterator[int]


def contents() -> dict[str, bytes]:
    """Return the shipped files, not compressed, by name."""
    lines = gzip.decompress((DATA / RUN).read_bytes()).splitlines()
    shipped = [line for line in lines if JOINED < json.loads(line)["number"] <= LAST]
    joined = json.loads(lines[0])
    joined |= {"chain_getBlock": None, "state_getStorage": {}}
    made = (
        json.dumps({"from_block": block, "storage": values}, separators=(",", ":"))
        for block, values in seeded(Recording.load(DATA, RUN)).made_storage()
        if block <= LAST
    )
    versions = json.loads((DATA / "runtime_versions.json").read_text(encoding="utf-8"))
    recorded = {"state_getRuntimeVersion": {str(SPEC_VERSION): versions["state_getRuntimeVersion"][str(SPEC_VERSION)]}}
    return {
        f"{JOINED}-{LAST}.jsonl": _text([json.dumps(joined, separators=(",", ":")).encode(), *shipped]),
        "made.jsonl": _text(line.encode() for line in made),
        f"{SPEC_VERSION}.scale": cut(gzip.decompress((DATA / "metadata" / f"{SPEC_VERSION}.scale.gz").read_bytes())),
        "runtime_versions.json": json.dumps(recorded, separators=(",", ":")).encode() + b"\n",
    }


def seeded(recording: Recording) -> Recording:
    """Make up storage of the recorded run 17844552 to 17844571, and return the recording."""
    make_up_storage(recording, _runtime(SPEC_VERSION), JOINED, start_state(recording))
    return recording


def start_state(recording: Recording, snapshot: int = SNAPSHOT) -> MadeState:
    """Return the state that a lane joins: recorded channels of para 1000, those that the run uses, a message that was not recorded."""
    state = MadeState(other={keys.ACTIVE_CONFIG: configuration(recording)})
    for name, value in recording.snapshots[snapshot].values.items():
        key, raw = bytes.fromhex(name[2:]), bytes.fromhex(value[2:])
        if key.startswith(keys.HRMP_CHANNELS):
            # what was in them was not recorded, nor taken by the run
            state.channels[keys.channel_of(key)] = decode_channel(raw)._replace(msg_count=0, total_size=0)
        elif key.startswith(keys.DMP_HEADS):
            state.downward_heads[keys.para_of(key)] = raw
    for channel in USED_CHANNELS:
        if channel not in state.channels:
            state.open_channel(*channel)
    state.lifecycles = {para: PARACHAIN for channel in state.channels for para in channel}
    para, sent_at, message = UNRECORDED_DOWNWARD
    state.downward[para] = [Queued(sent_at, message)]
    state.downward_heads[para] = link(None, sent_at, message)
    return state


def configuration(recording: Recording) -> bytes:
    """Return `Configuration.ActiveConfig` in the layout of the shipped metadata: values of a later block, 0 for fields it has not."""
    block, version = CONFIGURED
    raw = recording.snapshots[block].values[to_hex(keys.ACTIVE_CONFIG)]
    values = _runtime(version).value("Configuration", "ActiveConfig", bytes.fromhex(raw[2:]))
    runtime = _runtime(SPEC_VERSION)
    type_id = runtime.items["Configuration", "ActiveConfig"]
    fields = {name: values.get(name, 0) for name in runtime.configuration_fields} | {"executor_params": [[]]}
    return bytes(runtime._config.create_scale_object(f"scale_info::{type_id}").encode(fields).data)


def _runtime(version: int) -> Runtime:
    return Runtime("polkadot", version, gzip.decompress((DATA / "metadata" / f"{version}.scale.gz").read_bytes()))


def _text(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


# --- metadata ---


def cut(metadata: bytes) -> bytes:
    """Return metadata V14 with the types that this plugin needs; the others are empty tuples, so that ids stay."""
    config = RuntimeConfigurationObject(implements_scale_info=True)
    config.update_type_registry(load_type_registry_preset("core") or {})
    magic, version = config.create_scale_object("MetadataVersioned", ScaleBytes(metadata)).decode()
    whole = version["V14"]
    pallets = [_pallet(each) for each in whole["pallets"]]
    types = {each["id"]: each for each in whole["types"]["types"]}
    needed = _closure(types, _roots(pallets))
    empty = {"path": [], "params": [], "def": {"tuple": []}, "docs": []}
    kept = [_bare(each) if each["id"] in needed else {"id": each["id"], "type": empty} for each in types.values()]
    smaller = {**whole, "types": {"types": kept}, "pallets": _bare(pallets)}
    encoded = config.create_scale_object("MetadataVersioned").encode((magic, {"V14": smaller}))
    return bytes(encoded.data)


def _pallet(whole: Json) -> Json:
    """Return a pallet without constants and errors, with the storage of this plugin, and with calls if they matter."""
    items = {item for pallet, item in (*layout.STORAGE, *layout.REQUIRED, *RULES_ITEMS) if pallet == whole["name"]}
    entries = [each for each in (whole["storage"] or {}).get("entries", ()) if each["name"] in items]
    return {
        **whole,
        "storage": {**whole["storage"], "entries": entries} if entries else None,
        "constants": [],
        "error": None,
        "calls": whole["calls"] if whole["name"] in {"ParaInherent", "Hrmp"} else None,
    }


def _roots(pallets: Iterable[Json]) -> Iterator[int]:
    for pallet in pallets:
        if pallet["calls"] is not None:
            yield pallet["calls"]["ty"]
        for entry in (pallet["storage"] or {}).get("entries", ()):
            for kind in entry["type"].values():
                yield from (kind,) if isinstance(kind, int) else (kind["key"], kind["value"])


def _closure(types: Mapping[int, Json], roots: Iterable[int]) -> set[int]:
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += _references(types[each]["type"])
    return found


def _references(type_: Json) -> References:
    yield from (each["type"] for each in type_["params"] if each["type"] is not None)
    ((kind, content),) = type_["def"].items()
    if kind == "tuple":
        yield from content
    else:
        yield from _named(content)


def _named(value: Any) -> References:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in {"type", "bit_store_type", "bit_order_type"} and isinstance(each, int):
                yield each
            else:
                yield from _named(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _named(each)


def _bare(value: Any) -> Any:
    """Return a part of the metadata without its documentation."""
    if isinstance(value, dict):
        return {name: [] if name in {"docs", "documentation"} else _bare(each) for name, each in value.items()}
    return [_bare(each) for each in value] if isinstance(value, list | tuple) else value


def main(folder: Path) -> None:
    """Write the files, compressed but for small ones."""
    for name, content in contents().items():
        if name.endswith(".json"):
            (folder / name).write_bytes(content)
        else:
            (folder / f"{name}.xz").write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
