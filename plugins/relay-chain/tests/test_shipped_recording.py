# SPDX-License-Identifier: Apache-2.0
"""The shipped recording is small, whole, and a part of what was recorded."""

from __future__ import annotations

import gzip
import lzma
from itertools import pairwise

import make_shipped
import pytest
from relay_recordings import RECORDED, needs_recordings
from validator_relay_chain import keys
from validator_relay_chain.candidates import read_pending
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.rules import features_of
from validator_relay_chain.storage import decode_channel, decode_queue
from validator_simulators.relay_chain import Recording
from validator_simulators.relay_chain.made import decoded
from validator_simulators.relay_chain.recording import SHIPPED

BYTES_MAX = 200_000
BLOCKS = range(17_844_553, 17_844_557)
JOINED = BLOCKS.start - 1
INCLUDED = 72


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording.load(SHIPPED)


@pytest.fixture(scope="module")
def runtime(recording: Recording) -> Runtime:
    metadata = recording.metadata_of(9431)
    assert metadata is not None
    return Runtime("polkadot", 9431, metadata)


def value(recording: Recording, number: int, key: bytes) -> bytes:
    found = recording.value(recording.blocks[recording.canonical[number]], to_hex(key))
    assert found is not None
    return bytes.fromhex(found[2:])


def test_shipped_files_are_small() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < BYTES_MAX


def test_every_block_decodes_and_its_roots_are_true(recording: Recording, runtime: Runtime) -> None:
    blocks = [decoded(recording, runtime, number) for number in BLOCKS]
    assert [len(block.candidates) for block in blocks] == [22, 14, 22, 14]
    for before, block in pairwise(blocks):
        assert block.header.parent_hash == before.header.hash
    header = recording.blocks[recording.canonical[JOINED]].header
    assert Header.from_json(header).hash == blocks[0].header.parent_hash


def test_run_has_a_message_and_a_processed_one(recording: Recording, runtime: Runtime) -> None:
    candidates = [(number, each) for number in BLOCKS for each in decoded(recording, runtime, number).candidates]
    assert [(n, c.para_id, len(c.horizontal_messages)) for n, c in candidates if c.horizontal_messages] == [
        (17_844_555, 2004, 1)
    ]
    assert [(n, c.para_id) for n, c in candidates if c.processed_downward_messages] == [(17_844_553, 2000)]


def test_every_inclusion_is_of_a_candidate_that_is_known(recording: Recording, runtime: Runtime) -> None:
    joined = recording.blocks[recording.canonical[JOINED]]
    paras = [keys.para_of(bytes.fromhex(key[2:])) for key in recording.keys(joined, to_hex(keys.PENDING))]
    pending = {
        read_pending(
            value(recording, JOINED, keys.para_key(keys.PENDING, para)),
            value(recording, JOINED, keys.para_key(keys.PENDING_COMMITMENTS, para)),
            signals=runtime.has_signals,
        ).candidate.commitments_hash
        for para in paras
    }
    assert len(pending) == 14
    included = 0
    for number in BLOCKS:
        block = decoded(recording, runtime, number)
        for receipt in block.included:
            assert receipt.commitments_hash in pending
            pending.remove(receipt.commitments_hash)
            included += 1
        pending |= {each.commitments_hash for each in block.candidates}
    assert included == INCLUDED


def test_made_up_storage_follows_the_run(recording: Recording) -> None:
    downward = keys.para_key(keys.DMP_QUEUES, 2000)
    assert len(decode_queue(value(recording, 17_844_553, downward))) == 1
    block = recording.blocks[recording.canonical[17_844_554]]
    assert recording.value(block, to_hex(downward)) is None
    channel = keys.channel_key(keys.HRMP_CHANNELS, 2004, 2034)
    counts = [decode_channel(value(recording, number, channel)).msg_count for number in (JOINED, *BLOCKS)]
    assert counts == [0, 0, 0, 0, 1]


@needs_recordings
def test_shipped_files_are_what_the_script_makes() -> None:
    for name, content in make_shipped.contents().items():
        if name.endswith(".json"):
            assert (SHIPPED / name).read_bytes() == content
        else:
            assert lzma.decompress((SHIPPED / f"{name}.xz").read_bytes()) == content, name


@needs_recordings
def test_shipped_metadata_decodes_as_the_whole_does(recording: Recording, runtime: Runtime) -> None:
    whole = Runtime("polkadot", 9431, gzip.decompress((RECORDED / "metadata" / "9430.scale.gz").read_bytes()))
    assert (runtime.enter, runtime.configuration_fields) == (whole.enter, whole.configuration_fields)
    assert features_of(runtime) == features_of(whole)
    everything = Recording.load(RECORDED, "17844552-17844571.jsonl.gz")
    for block in everything.blocks.values():
        raw = bytes.fromhex(block.storage[to_hex(keys.SYSTEM_EVENTS)][2:])
        assert runtime.events(raw) == whole.events(raw)
    raw = value(recording, JOINED, keys.ACTIVE_CONFIG)
    assert runtime.value("Configuration", "ActiveConfig", raw) == whole.value("Configuration", "ActiveConfig", raw)
