# SPDX-License-Identifier: Apache-2.0
"""Hashes that live chains recorded: commitments, message queue heads, and the proofs that tie these to a block's state root."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.realdata.convert import Records, candidate_record, definition, seed
from tests.realdata.recorded import Json, blocks, events, links, needs_data, topology
from tests.realdata.runs import follow
from tests.unit.lanes.chains import inputs_of, record
from validator.core.hashing import blake2b_256, message_hash, mqc_link
from validator.core.inputs import DeadLetter
from validator.core.outcomes import InputKind
from validator.core.scale import Reader, Writer
from validator.core.types import ZERO_HASH
from validator.protocols.router.records import Candidate
from validator.protocols.router.records import candidate as candidate_of

pytestmark = needs_data


def recorded_candidate(event: Json) -> Candidate:
    """Return a recorded candidate in the form that decoding gives."""
    body = candidate_record(event, 0)
    (item,) = inputs_of([record("candidates", body)])
    assert not isinstance(item, DeadLetter)
    return candidate_of(item.fields)


def commitments_hash(candidate: Candidate, head_data: bytes) -> str:
    """Return the BLAKE2b-256, in hex, of a candidate's ``CandidateCommitments`` without new code (router_rules 1.2 "Commitments carry")."""
    out = Writer()
    out.compact(len(candidate.upward_messages))
    for payload in candidate.upward_messages:
        out.bytes(payload)
    out.compact(len(candidate.horizontal_messages))
    for message in candidate.horizontal_messages:
        out.u32(message.recipient)
        out.bytes(message.data)
    out.option(None, out.bytes)
    out.bytes(head_data)
    out.u32(candidate.processed_downward_messages)
    out.u32(candidate.hrmp_watermark)
    return blake2b_256(bytes(out.buffer)).hex()


# --- commitments ---

# Head data of five recorded candidates, which their commitments hash needs, from the same blocks: with a horizontal message, an upward
# one, a processed downward one, a horizontal one, an upward one.
HEAD_DATA = {
    ("kusama", 22648011, 1000): (
        "1d3ce115b5e4fc040bb4f480359a2cf7e7410ae7d6d5e251ef240677a761d203fefc9b0165521f6e42e60723b526763c0c72"
        "3b542b3e40ae9166292120e6d8008b702a2970d80500b7ecdefeec53a5920be8bddb582aba40abe59c409eccc428205f909e"
        "0c06617572612028a78108000000000452505352905bbf4b97bc0be01508e4f85e937fdecfc52a218a6b9350ab98f1e7a4d7"
        "93758c2a536605056175726101011293b114f4bb9790a4dc6535ccffd5e5cd818378864356743a7a13c2984d6c1af07a092c"
        "e43456db62f0d117e81048f414c5627302335d6093fae25f86fdfc8c"
    ),
    ("polkadot", 17773280, 1000): (
        "51ab03d6535a57bd2f9c01203e55141c144f34adb52b42ca61944077f1f545c0e61f2601c4f739903959b3923fa4ff0747d4"
        "c918bd8902fc93c6aae52bfc893d4e5bb6709bea9d4afa745099f1aabe6ac0c098614a60cdc8b4be843acbdf20b7e96e3ae6"
        "0c06617572612085a16e080000000004525053529017d6a30bd9c3ccc8ec32b8f601fa491678618063e20092d8ef480b5edd"
        "7081027ecb3c0405617572610101f3a5d921fa20be92e30968347bb0f7c8285b5a7231c95c6c9325af82bf80020c73126400"
        "fb1d4f7b46ae47f4cd389d2c0ebfbd01187bcc16e280307efd84ab01"
    ),
    ("polkadot", 17844553, 2000): (
        "2355de5d6a5aa15bd6f097d1c6f9528ccc544d6d826639e2ad81336dda710cfb72bf2001eab72cff5a721955577b5af6d32b"
        "0a0dd540df51e163aa67a2c2af441ec2dd737d6c5940c51d8fc3fcbcb8107c5b712bad789c8fb827a1e961f770a2314d51ed"
        "0c066175726120082d6f08000000000452505352908648079d1c06a851ab4de24309bbe7c7476af6a9ccbf3e4811933d3ed5"
        "be1604222541040561757261010110a7cad0619eafee2f0809f01bf8c4b72d6dce9e8d70e8d8ef0c15c6273b2546afa8dfb0"
        "d192006a76652c21db0dbf3203da6c27d8235443ff3dee8fee91cc8b"
    ),
    ("polkadot", 17844565, 2000): (
        "14ff93f88eb126c2f50edde08f474032e78cd44c61ad58e66d3518589fb326698abf200103f7f59a326585a5681913242e4f"
        "9df6117eecae25d1770eb9e3d5be96ab8250aef53d02b40f31fa94e0513dc958cbdec60d1d0800c7160c2c704d1d7cb0b2f1"
        "0c0661757261200e2d6f0800000000045250535290c1df08727b5325152f4ac48ca284d4eceba2748d6f40c3fda4946ba4bd"
        "21365552254104056175726101014272a9ca15860273899b190e0967f28e9b48bc5bfc4dbd15000e87e280a40c1dba66176b"
        "b9eef6469f956a1aad3b01484e2ce1e0c5dea60825c1ffb18bc37886"
    ),
    ("polkadot", 23088963, 1005): (
        "4a624097f8f4eba1e54311c58e5ea4cd9666acb29e35b41c2e7ae3196e57c61622e914009ed363e7f0193d860255a8fadd4e"
        "ac5a772d5d8ec1cc6a06aad2671ec00de7d8d6a186195696b144eadf7423c6b08900a71ddeea4f9508e31b5b28895259f967"
        "0c066175726120f9629708000000000452505352905513d3271f20d8df1b5b89686eef8d023341466cb6d3f8a1339b9d828f"
        "7717120a3d81050561757261010156f2dd938eb74fddd8d7395ab074ac5db1a4e2dd058adb53ac59fd1ef4946118a58afefa"
        "746da5597ac1f0a12d7811fa617c4daae460a0af0bf7c7d43258078f"
    ),
}


@pytest.mark.parametrize("place", HEAD_DATA, ids=lambda place: "-".join(map(str, place)))
def test_commitments_hash_matches_the_recorded_one(place: tuple[str, int, int]) -> None:
    chain, block, para = place
    event = next(each for each in blocks(chain)[block]["candidates"] if each["para"] == para)
    assert event["horizontal_messages"] or event["upward_messages"] or event["processed_downward_messages"]
    head_data = bytes.fromhex(HEAD_DATA[place])
    assert len(head_data) == event["head_data_len"]
    assert blake2b_256(head_data).hex() == event["para_head"]
    assert event["new_code_len"] is None
    candidate = recorded_candidate(event)
    assert commitments_hash(candidate, head_data) == event["commitments_hash"]
    changed = candidate._replace(hrmp_watermark=candidate.hrmp_watermark - 1)
    assert commitments_hash(changed, head_data) != event["commitments_hash"]


def test_commitments_of_candidates_with_head_data_match() -> None:
    complete = [event for event in events()["candidate"] if "head_data" in event]
    if not complete:
        pytest.skip("the recorded candidates lack their head data, which the commitments hash covers")
    for event in complete:
        assert (
            commitments_hash(recorded_candidate(event), bytes.fromhex(event["head_data"])) == event["commitments_hash"]
        )


def test_chain_included_the_committed_candidates() -> None:
    included = 0
    for chain in ("polkadot", "kusama", "rococo"):
        committed = {
            candidate["commitments_hash"] for block in blocks(chain).values() for candidate in block["candidates"]
        }
        included_hashes = {event["commitments_hash"] for block in blocks(chain).values() for event in block["events"]}
        included += len(committed & included_hashes)
    assert included > 490
    for candidate in events()["candidate"]:
        assert candidate["commitments_hash"] == candidate["commitments_hash_on_chain"]


# --- message queue heads ---


def channel_value(value: str) -> dict[str, Any]:
    """Decode a channel from the relay chain's storage."""
    reader = Reader(bytes.fromhex(value))
    names = ("max_capacity", "max_total_size", "max_message_size", "msg_count", "total_size")
    channel: dict[str, Any] = {name: reader.u32() for name in names}
    channel["mqc_head"] = reader.option(reader.hash)
    channel["sender_deposit"], channel["recipient_deposit"] = reader.u128(), reader.u128()
    reader.end()
    return channel


def link_id(link: Json) -> str:
    return f"{link['chain']}-{link['sender']}-{link['recipient']}-{link['messages'][0]['sent_at']}"


def all_links() -> list[Any]:
    try:
        return [pytest.param(link, id=link_id(link)) for link in links()]
    except FileNotFoundError:
        return [pytest.param({}, id="absent")]


each_link = pytest.mark.parametrize("link", all_links())


@each_link
def test_recorded_channel_matches_its_storage_and_proof(link: Json) -> None:
    for side in (link["before"], link["after"]):
        value = channel_value(side["storage_value"])
        assert value["mqc_head"] == (None if side["mqc_head"] is None else bytes.fromhex(side["mqc_head"]))
        ends = link["sender"].to_bytes(4, "little") + link["recipient"].to_bytes(4, "little")
        assert side["storage_key"].endswith(ends.hex())
        # from the state root down to the node with the value: each node's hash, or a short node itself, is in its parent
        nodes = [bytes.fromhex(node) for node in side["proof"]]
        assert blake2b_256(nodes[0]).hex() == side["relay_state_root"]
        for above, below in itertools.pairwise(nodes):
            assert blake2b_256(below) in above or below in above
        assert bytes.fromhex(side["storage_value"]) in nodes[-1]


@each_link
def test_lane_links_recorded_head_to_the_next(link: Json, tmp_path: Path) -> None:
    chain, sender, recipient = link["chain"], link["sender"], link["recipient"]
    (message,) = link["messages"]
    included_at = message["sent_at"]
    before, after = (channel_value(link[side]["storage_value"]) for side in ("before", "after"))
    waiting = waiting_messages(link, before)
    carriers = [
        {"para_id": sender, "horizontal_messages": [{"recipient": recipient, "data": message["data"]}]},
        {"para_id": recipient, "horizontal_messages": []},  # takes the waiting messages
    ]
    carriers.sort(key=lambda each: int(each["para_id"]))
    records: Records = [
        ("blocks", block_body(chain, included_at - 1, candidates=2)),
        *(("candidates", candidate_body(chain, included_at - 1, index, each)) for index, each in enumerate(carriers)),
        ("blocks", block_body(chain, included_at, included=[sender, recipient])),
    ]
    channel = {
        "limit_used_places": before["max_capacity"],
        "limit_used_bytes": before["max_total_size"],
        "limit_message_size": before["max_message_size"],
        "sender_deposit": before["sender_deposit"],
        "recipient_deposit": before["recipient_deposit"],
        "mqc_head": (before["mqc_head"] or ZERO_HASH).hex(),
    }
    keys: Json = {}
    if waiting:
        keys["contents"] = {f"{sender}->{recipient}": waiting}
        keys["digests"] = {str(recipient): [[each["sent_at"], [sender]] for each in waiting]}
    state = seed(chain, included_at - 1, channels={(sender, recipient): channel}, **keys)
    followed = follow(definition(chain, state, tmp_path), records)

    assert followed.rejected() == []
    (verdict,) = (each for each in followed.verdicts(InputKind.INCLUSION) if each.messages)
    assert (verdict.block, verdict.para_id) == (included_at, sender)
    assert [(each.recipient, each.mqc_head) for each in verdict.messages] == [(recipient, after["mqc_head"])]
    now = followed.state.hrmp_channels[sender, recipient]
    assert (now.used_places, now.used_bytes) == (after["msg_count"], after["total_size"])
    assert now.mqc_head == after["mqc_head"]


def waiting_messages(link: Json, before: dict[str, Any]) -> list[Json]:
    """Return the messages that waited in a channel, as recorded when its recipient took them."""
    found = [
        {"sent_at": event["sent_at"], "data": event["data"]}
        for event in events()["inbound_hrmp"]
        if (event["chain"], event["sender"], event["para"]) == (link["chain"], link["sender"], link["recipient"])
        and bytes.fromhex(event["channel_mqc_head_after"]) == before["mqc_head"]
        and before["msg_count"]
    ]
    assert (len(found), sum(len(each["data"]) // 2 for each in found)) == (before["msg_count"], before["total_size"])
    return found


def block_body(chain: str, number: int, candidates: int = 0, included: list[int] | None = None) -> Json:
    return {
        "lane": chain,
        "block": number,
        "candidates": candidates,
        "requests": 0,
        "downward": 0,
        "included": [{"para_id": para, "backed_at": None} for para in included or ()],
        "timed_out": [],
    }


def candidate_body(chain: str, number: int, index: int, carrier: Json) -> Json:
    return {
        "lane": chain,
        "block": number,
        "index": index,
        "relay_parent_number": number - 1,
        "hrmp_watermark": number - 1,
        "upward_messages": [],
        "processed_downward_messages": 0,
        **carrier,
    }


def test_heads_that_recipients_saw_match_the_links() -> None:
    """Recipients saw 31 messages with the channel's head; if an earlier head is known, the link leads there."""
    known = {
        (link["chain"], link["sender"], link["recipient"], link["messages"][0]["sent_at"]): link["before"]["mqc_head"]
        for link in links()
    }
    inbound = events()["inbound_hrmp"]
    # two messages to one recipient with nothing between them
    for earlier, later in itertools.pairwise(inbound):
        if (earlier["sender"], earlier["para"], earlier["sent_at"]) == (1002, 1000, 20_252_961):
            known["polkadot", 1002, 1000, later["sent_at"]] = earlier["channel_mqc_head_after"]
    explained = 0
    for event in inbound:
        place = (event["chain"], event["sender"], event["para"], event["sent_at"])
        assert (event["channel_msg_count"], event["channel_total_size"]) == (1, len(event["data"]) // 2)
        if place in known:
            head = ZERO_HASH if known[place] is None else bytes.fromhex(known[place])
            linked = mqc_link(head, event["sent_at"], message_hash(bytes.fromhex(event["data"])))
            assert linked.hex() == event["channel_mqc_head_after"]
            explained += 1
    assert (len(inbound), explained) == (31, len(links()) + 1)


def test_message_is_linked_with_its_inclusion_block() -> None:
    """Real candidates whose message its recipient saw: backed in one block, included, and so sent, in the next."""
    inbound = {
        (event["chain"], event["sender"], event["para"], event["data"]): event["sent_at"]
        for event in events()["inbound_hrmp"]
    }
    followed = [
        (candidate, inbound[candidate["chain"], candidate["para"], message["recipient"], message["data"]])
        for candidate in events()["candidate"]
        for message in candidate["horizontal_messages"]
        if (candidate["chain"], candidate["para"], message["recipient"], message["data"]) in inbound
    ]
    assert len(followed) == 5
    for candidate, sent_at in followed:
        assert sent_at == candidate["relay_block"] + 1
        block = blocks(candidate["chain"]).get(sent_at)
        if block is not None:
            assert candidate["commitments_hash"] in [event["commitments_hash"] for event in block["events"]]


def test_recorded_channels_match_the_tables_of_channels() -> None:
    for chain, count in (("polkadot", 242), ("kusama", 66)):
        by_ends = {
            (int(row["sender"]), int(row["recipient"])): (
                row["mqc_head"] or None,
                int(row["msg_count"]),
                int(row["total_size"]),
            )
            for row in topology(chain)
        }
        recorded = {
            (event["sender"], event["recipient"]): (event["mqc_head"], event["msg_count"], event["total_size"])
            for event in events()["channel"]
            if event["chain"] == chain
        }
        assert recorded == by_ends
        assert len(recorded) == count


# --- every record, through Avro ---


def test_every_candidate_survives_avro() -> None:
    chains: Counter[str] = Counter()
    for event in events()["candidate"]:
        candidate = recorded_candidate(event)
        assert candidate.para_id == event["para"]
        assert [payload.hex() for payload in candidate.upward_messages] == event["upward_messages"]
        assert candidate.processed_downward_messages == event["processed_downward_messages"]
        assert candidate.hrmp_watermark == event["hrmp_watermark"]
        for decoded, sent in zip(candidate.horizontal_messages, event["horizontal_messages"], strict=True):
            assert (decoded.recipient, decoded.data.hex()) == (sent["recipient"], sent["data"])
            # the decode stage has already hashed it
            assert decoded.data_hash == message_hash(decoded.data)
        chains[event["chain"]] += 1
    assert chains == {"polkadot": 1303, "kusama": 39, "rococo": 25}
