# SPDX-License-Identifier: Apache-2.0
"""Made-up blocks are whole: their hashes, roots and proofs are true, and recorded metadata decodes their events."""

from __future__ import annotations

from pathlib import Path

import pytest
from relay_recordings import client_of
from validator_relay_chain import keys
from validator_relay_chain.block import check_extrinsics, decode_block, read_block
from validator_relay_chain.header import Header
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.storage import decode_channel, decode_digests, decode_queue
from validator_relay_chain.trie import read_proof
from validator_simulators.relay_chain import MockNode, RecordedBlock, Recording
from validator_simulators.relay_chain.made import PARACHAIN, MadeCandidate, MadeChain, MadeState, link
from validator_simulators.relay_chain.recording import SHIPPED

PARAS = (2000, 2004)


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    recording = Recording.load(SHIPPED)
    metadata = recording.metadata_of(9430)
    assert metadata is not None
    return Runtime("polkadot", 9430, metadata)


@pytest.fixture
def chain() -> MadeChain:
    state = MadeState(lifecycles=dict.fromkeys(PARAS, PARACHAIN))
    state.open_channel(2000, 2004)
    return MadeChain(Recording(), state, 99, bytes(32))


def decoded(block: RecordedBlock, runtime: Runtime):  # type: ignore[no-untyped-def]
    events = block.storage["0x" + keys.SYSTEM_EVENTS.hex()]
    raw = read_block(block.body, events, bytes.fromhex(block.hash[2:]))
    check_extrinsics(raw)
    return decode_block(raw, runtime)


def value(block: RecordedBlock, key: bytes) -> bytes | None:
    found = block.storage.get("0x" + key.hex())
    return None if found is None else bytes.fromhex(found[2:])


def test_candidate_is_backed_and_included(chain: MadeChain, runtime: Runtime) -> None:
    candidate = MadeCandidate(2000, chain.parent, 99, (b"up",), ((2004, b"across"),), 0)
    first = chain.add(backed=[candidate])
    second = chain.add(included=[2000])
    assert decoded(first, runtime).candidates == (candidate.backed(),)
    (receipt,) = decoded(second, runtime).included
    assert (receipt.para_id, receipt.commitments_hash) == (2000, candidate.backed().commitments_hash)
    assert Header.from_json(second.header).parent_hash.hex() == first.hash[2:]


def test_storage_follows_candidates(chain: MadeChain) -> None:
    key = keys.channel_key(keys.HRMP_CHANNELS, 2000, 2004)
    chain.add(backed=[MadeCandidate(2000, chain.parent, 99, (), ((2004, b"across"),))], downward=[(2004, b"down")])
    sent = chain.add(included=[2000], backed=[MadeCandidate(2004, chain.parent, 101, processed_downward_messages=1)])
    raw = value(sent, key)
    assert raw is not None
    assert decode_channel(raw)[3:6] == (1, 6, link(None, 101, b"across"))
    digests = value(sent, keys.para_key(keys.HRMP_DIGESTS, 2004))
    assert digests is not None
    assert decode_digests(digests) == ((101, (2000,)),)
    queue = value(sent, keys.para_key(keys.DMP_QUEUES, 2004))
    assert queue is not None
    assert decode_queue(queue) == ((100, b"down"),)
    taken = chain.add(included=[2004])
    raw = value(taken, key)
    assert raw is not None
    assert decode_channel(raw)[3:6] == (0, 0, link(None, 101, b"across"))
    assert value(taken, keys.para_key(keys.DMP_QUEUES, 2004)) is None
    assert value(taken, keys.para_key(keys.DMP_HEADS, 2004)) == link(None, 100, b"down")
    assert value(taken, keys.para_key(keys.HRMP_WATERMARKS, 2004)) == (101).to_bytes(4, "little")


def test_channel_opens_and_closes_with_sessions(chain: MadeChain, runtime: Runtime) -> None:
    opened = keys.channel_key(keys.HRMP_CHANNELS, 2004, 2000)
    requested = decoded(chain.add(requests=[("open", 2004, 2000)]), runtime)
    assert [event.name for event in requested.channel_events] == ["OpenChannelRequested"]
    accepted = chain.add(requests=[("accept", 2004, 2000)])
    assert value(accepted, opened) is None
    session = chain.add(new_session=True)
    assert decoded(session, runtime).new_session
    assert value(session, opened) is not None
    closing = decoded(chain.add(requests=[("close", 2004, 2000)]), runtime)
    assert [(event.name, event.fields[0]) for event in closing.channel_events] == [("ChannelClosed", 2004)]
    assert value(chain.add(new_session=True), opened) is None


def test_candidate_times_out(chain: MadeChain, runtime: Runtime) -> None:
    chain.add(backed=[MadeCandidate(2000, chain.parent, 99)])
    gone = decoded(chain.add(timed_out=[2000]), runtime)
    assert [receipt.para_id for receipt in gone.timed_out] == [2000]
    assert gone.included == ()


def test_upgrade_is_in_the_digest_and_in_the_state_after_its_block(chain: MadeChain) -> None:
    upgrading = chain.add(upgrade_to=1_000_001)
    after = chain.add()
    assert Header.from_json(upgrading.header).updates_runtime
    recording = chain.recording
    assert [recording.spec_version(each) for each in (upgrading, after)] == [1_000_001, 1_000_001]
    assert after.spec_version == 1_000_001
    assert upgrading.spec_version == 9430


def test_fork_leaves_the_canonical_chain(chain: MadeChain) -> None:
    chain.add()
    kept = chain.add(downward=[(2000, b"one")])
    fork = MadeChain(chain.recording, MadeState(), 100, bytes.fromhex(chain.recording.canonical[100][2:]))
    other = fork.add(canonical=False)
    assert other.number == kept.number
    assert other.hash != kept.hash
    assert chain.recording.canonical[101] == kept.hash
    assert chain.recording.at(other.hash) == other


def test_proof_of_made_storage_verifies(chain: MadeChain) -> None:
    block = chain.add(changes={keys.ACTIVE_CONFIG: b"config"})
    asked = [keys.ACTIVE_CONFIG, keys.channel_key(keys.HRMP_CHANNELS, 2000, 2004), keys.HRMP_OPEN_REQUESTS_LIST]
    with MockNode(chain.recording) as node, client_of(node) as client:
        answer = client.call("state_getReadProof", ["0x" + key.hex() for key in asked], block.hash)
    nodes = [bytes.fromhex(each[2:]) for each in answer["proof"]]
    proven = read_proof(Header.from_json(block.header).state_root, nodes, asked)
    assert proven == {key: value(block, key) for key in asked}
    assert proven[keys.ACTIVE_CONFIG] == b"config"


def test_removed_value_is_gone(chain: MadeChain) -> None:
    chain.add(changes={keys.ACTIVE_CONFIG: b"config"})
    assert value(chain.add(changes={keys.ACTIVE_CONFIG: None}), keys.ACTIVE_CONFIG) is None


def test_unknown_request_is_refused(chain: MadeChain) -> None:
    with pytest.raises(ValueError, match="expected open, accept or close, found 'cancel'"):
        chain.add(requests=[("cancel", 2000, 2004)])


def test_everything_made_is_listed(chain: MadeChain, tmp_path: Path) -> None:
    block = chain.add()
    assert chain.recording.made == [f"block 100 {block.hash}"]
