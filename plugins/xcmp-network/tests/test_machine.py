# SPDX-License-Identifier: Apache-2.0
"""The rules compared with the naive model, step by step: every result with its fields, every event, and the full state after every step.

Bounds are tiny and paras are few, so interactions are frequent: full channels, partly acknowledged blocks, channels that go with unread
messages, paras that leave and return, candidates that overtake each other on their way to inclusion.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from validator_simulators.xcmp_network.model import NaiveNetwork
from validator_xcmp_network.rules import XCMP_NETWORK
from validator_xcmp_network.state import MAXIMA, read_configuration
from validator_xcmp_network.traces import read_candidate, read_request, view

from tests.hypothesis_profile import examples
from tests.rule_sets import Json, check_everything, para_of, restored, result_of, session_change_of
from validator.core.rules import LaneRules, pages
from validator.plugin.protocol_api import Balances, ChainSettings, DownwardMessage, Enactment, Node, PendingRef

PARAS = (1, 2, 3, 4)
NOBODY = 9
ALL = 2**32 - 1
PAIRS = [(sender, recipient) for sender in PARAS for recipient in PARAS if sender != recipient]
BOUNDS = {
    "max_block_bytes": st.integers(0, 30),
    "max_channel_messages": st.integers(0, 3),
    "max_ingress_messages": st.integers(0, 5),
    "xcmp_channel_capacity": st.integers(0, 3),
}
LIMITS = {
    "xcmp_channel_capacity": 2,
    "xcmp_max_outbound_channels": 3,
    "xcmp_sender_deposit": 5,
    "xcmp_recipient_deposit": 3,
    "xcmp_open_request_ttl": 2,
    "xcmp_condemned_sessions": 3,
}

paras = st.sampled_from((*PARAS, *PARAS, NOBODY))
roots = st.sampled_from(("01" * 32, "02" * 32))


class NetworkMachine(RuleBasedStateMachine):
    """Every rule gives the same input to both sides and compares the results; the invariants compare the states."""

    rules: LaneRules

    @initialize(
        mode=st.sampled_from(("fixed", "fixed", "xcmp")),
        intra_block=st.sampled_from(("free", "prefix")),
        require_bodies=st.booleans(),
        bound=st.none() | st.integers(1, 5),
        on_inclusion=st.booleans(),
        channels=st.lists(st.sampled_from(PAIRS), min_size=4, max_size=12, unique=True),
    )
    def genesis(
        self,
        mode: str,
        intra_block: str,
        require_bodies: bool,
        bound: int | None,
        on_inclusion: bool,
        channels: list[tuple[int, int]],
    ) -> None:
        config = {
            "channels": mode,
            "intra_block": intra_block,
            "require_bodies": require_bodies,
            "max_ingress_messages": bound,
            "max_channel_messages": 2,
            "max_block_bytes": 20,
            **LIMITS,
        }
        genesis = [{"para_id": para, "balance": 1000} for para in PARAS]
        fixed = channels if mode == "fixed" else []
        listed = {"open_channels": [list(pair) for pair in fixed]} if fixed else {}
        self.settings = ChainSettings(
            read_configuration(Node({**config, **listed}, "config")),
            tuple(map(para_of, genesis)),
            balances=Balances.LEDGER,
            enactment=Enactment.ON_INCLUSION if on_inclusion else Enactment.IMMEDIATE,
        )
        self.rules = XCMP_NETWORK.at_genesis(self.settings)
        self.naive = NaiveNetwork(config, genesis, unlimited=False, on_inclusion=on_inclusion, channels=fixed)
        self.begin(1, [], [])
        if mode == "xcmp":
            for sender, recipient in channels:
                self.open(sender, recipient)
            self.change({})
            self.begin(2, [], [])

    def begin(self, block: int, included: list[Json], timed_out: list[Json]) -> None:
        self.now = block
        self.rules.begin_block(block)
        results = [result_of(self.rules.apply_inclusion, PendingRef(**entry)) for entry in included]
        results += [result_of(self.rules.apply_timeout, PendingRef(**entry)) for entry in timed_out]
        assert results == self.naive.begin_block(block, included, timed_out)

    # --- requests ---

    def request(self, request: Json) -> Json:
        result = result_of(self.rules.apply_request, read_request(Node(request, "request")))
        assert result == self.naive.request(request)
        return result

    def open(self, sender: int, recipient: int) -> None:
        if self.request({"kind": "init_open_channel", "origin": sender, "recipient": recipient})["ok"]:
            self.request({"kind": "accept_open_channel", "origin": recipient, "sender": sender})

    @rule(pair=st.sampled_from(PAIRS))
    def open_channel(self, pair: tuple[int, int]) -> None:
        self.open(*pair)

    @rule(data=st.data(), pair=st.sampled_from(PAIRS))
    def close_channel(self, data: st.DataObject, pair: tuple[int, int]) -> None:
        origin = data.draw(st.sampled_from(pair))
        self.request({"kind": "close_channel", "origin": origin, "sender": pair[0], "recipient": pair[1]})

    @rule(data=st.data())
    def report_bodies(self, data: st.DataObject) -> None:
        """Report bodies that are there, some of them twice or changed."""
        for message in list(self.naive.messages):
            report = {
                "kind": "report_body",
                "recipient": message["recipient"],
                "sender": message["sender"],
                "sent_at": message["block"],
                "root": message["root"],
                "size": message["size"],
            }
            change = data.draw(st.sampled_from(({}, {}, {}, {"size": 7}, {"root": "07" * 32}, {"sent_at": 0})))
            self.request(report | change)

    # --- messages ---

    @rule(para=paras, msg=st.sampled_from(("", "aa")))
    def downward(self, para: int, msg: str) -> None:
        self.rules.apply_downward(DownwardMessage(para, bytes.fromhex(msg)))
        self.naive.downward(para, msg)

    def candidate(self, candidate: Json) -> None:
        read = read_candidate(Node(candidate, "candidate"), self.now)
        if not self.naive.composed:
            candidate = {key: value for key, value in candidate.items() if key in FIXED_KEYS}
        elif self.naive.pending and self.naive.pending[-1]["candidate"]["para_id"] == candidate["para_id"]:
            return  # a row's bits are judged once: a para has one candidate pending at a time on a chain
        assert result_of(self.rules.apply_candidate, read) == self.naive.candidate(candidate)

    @rule(
        data=st.data(), senders=st.lists(st.sampled_from(PARAS), min_size=1, max_size=5), gap=st.sampled_from((1, 1, 3))
    )
    def traffic(self, data: st.DataObject, senders: list[int], gap: int) -> None:
        """A block of candidates close to what the state allows, on either side of it; then the next block."""
        for para in senders:
            parent = data.draw(st.sampled_from((self.now - 1, self.now - 1, max(0, self.now - 2), self.now)))
            outbox = self.draw_outbox(data, para)
            row = [channel["recipient"] for channel in self.naive.row(para)]
            bits = "".join("01"[recipient in outbox] for recipient in row)
            self.candidate(
                {
                    "para_id": data.draw(st.sampled_from((para, para, para, para, NOBODY))),
                    "relay_parent_number": parent,
                    "outbox": [
                        {"recipient": each, "root": data.draw(roots), "size": data.draw(st.integers(0, 15))}
                        for each in outbox
                    ],
                    "acks": self.draw_acks(data, para, parent),
                    "watermark": data.draw(st.sampled_from([[parent, ALL], [parent, ALL], None])),
                    "bitfield": data.draw(st.sampled_from((bits, bits, bits, "1"))),
                    "message_root": "aa" * 32,
                }
            )
        self.next_block(data, gap)

    def draw_outbox(self, data: st.DataObject, para: int) -> list[int]:
        others = [each for each in PARAS if each != para and self.naive.capacity(para, each) is not None]
        chosen = sorted(data.draw(st.sets(st.sampled_from(others)))) if others else []
        return data.draw(st.sampled_from((chosen, chosen, chosen, chosen[::-1], [*chosen, *chosen[:1]], [NOBODY])))

    def draw_acks(self, data: st.DataObject, para: int, parent: int) -> list[list[int]]:
        """Some front of what is visible; or anything close to it."""
        visible = self.naive.visible(para, parent)
        front = visible[: data.draw(st.integers(0, len(visible)))] if visible else []
        past = self.naive.acked.get(para, [])
        odd = [*self.naive.inbox(para), *past, (self.now, 1), (max(0, self.now - 1), NOBODY), (1, 2)]
        free = data.draw(st.lists(st.sampled_from(odd), max_size=3))
        return [list(name) for name in data.draw(st.sampled_from((visible, front, front, front[-1:], free)))]

    # --- ends of blocks ---

    @rule(data=st.data(), gap=st.sampled_from((1, 1, 2)))
    def end_block(self, data: st.DataObject, gap: int) -> None:
        self.next_block(data, gap)

    @rule(
        data=st.data(),
        outgoing=st.lists(paras, max_size=1),
        onboarding=st.lists(st.fixed_dictionaries({"para_id": st.sampled_from(PARAS)}), max_size=3),
        new_config=st.just({}) | st.fixed_dictionaries({}, optional=BOUNDS),
    )
    def end_session(
        self, data: st.DataObject, outgoing: list[int], onboarding: list[Json], new_config: dict[str, int]
    ) -> None:
        onboarding = [para | {"balance": 100} for para in onboarding]
        self.change({"outgoing": outgoing, "onboarding": onboarding, "new_config": new_config})
        self.next_block(data, 1)

    @rule(data=st.data())
    def end_quiet_session(self, data: st.DataObject) -> None:
        self.change({})
        self.next_block(data, 1)

    def change(self, change: Json) -> None:
        self.rules.change_session(session_change_of(change, MAXIMA))
        self.naive.session_change(change)
        assert self.rules.session == self.naive.session

    def next_block(self, data: st.DataObject, gap: int, *, restart: bool = False) -> None:
        events = [
            (each.event.value, each.recipient, each.sender, each.sent_at, each.root.hex(), each.size)
            for each in self.rules.env.ingress.events
        ]
        assert events == self.naive.ingress_events
        assert [each.index for each in self.rules.env.ingress.events] == list(range(len(events)))
        self.compare()
        if restart:
            saved = pages(self.rules)
            self.rules = restored(self.rules, self.settings.enactment)
            assert pages(self.rules) == saved
            assert list(self.rules.changed()) == []
        included: list[Json] = []
        timed_out: list[Json] = []
        for item in self.naive.pending:
            named = data.draw(st.sampled_from((item["backed_at"], None)))
            entry = {"para_id": item["candidate"]["para_id"], "backed_at": named}
            data.draw(st.sampled_from((included, included, timed_out, [])), label="becomes of it").append(entry)
        self.begin(self.now + gap, included, timed_out)

    # --- restarts ---

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """Continue in the next block with rules restored from the pages that a chain saves."""
        self.next_block(data, 1, restart=True)

    @precondition(lambda self: hasattr(self, "rules"))
    @invariant()
    def compare(self) -> None:
        expected: dict[str, Any] = self.naive.state()
        assert view(self.rules.state) == expected
        check_everything(self.rules, "xcmp-network")

    @precondition(lambda self: hasattr(self, "rules"))
    @invariant()
    def changed_pages_are_marked(self) -> None:
        """Saving only the pages marked as changed keeps the saved state complete."""
        kept = getattr(self, "kept", {})
        for owner in self.rules.changed() if kept else self.rules.owners():
            kept[owner] = self.rules.page(owner)
        self.rules.mark_saved()
        self.kept = {owner: page for owner, page in kept.items() if page is not None}
        assert [self.kept[owner] for owner in sorted(self.kept)] == pages(self.rules)[2:]


FIXED_KEYS = ("para_id", "relay_parent_number", "outbox", "acks")

NetworkMachine.TestCase.settings = settings(examples(150), stateful_step_count=40)
TestNetwork = NetworkMachine.TestCase
