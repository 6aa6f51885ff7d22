# SPDX-License-Identifier: Apache-2.0
"""The rules compared with the naive model, step by step: every result with its fields, every event, and the full state after every step.

Limits are tiny and paras are few, so interactions are frequent: full rows, columns that move while others are condemned, paras that leave
with open requests and return, candidates that a session boundary drops.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from validator_simulators.xcmp.model import NaiveXcmp
from validator_xcmp.rules import XCMP
from validator_xcmp.state import MAXIMA, XcmpConfiguration
from validator_xcmp.traces import read_candidate, read_request, view

from tests.hypothesis_profile import examples
from tests.rule_sets import Json, check_everything, para_of, restored, result_of, session_change_of
from validator.core.rules import LaneRules, pages
from validator.plugin.protocol_api import Balances, ChainSettings, DownwardMessage, Enactment, Node, PendingRef

PARAS = (1, 2, 3, 4)
NOBODY = 9
ALL = 2**32 - 1

LIMITS = {
    "xcmp_channel_capacity": st.integers(0, 9),
    "xcmp_max_outbound_channels": st.integers(0, 3),
    "xcmp_sender_deposit": st.integers(0, 7),
    "xcmp_recipient_deposit": st.integers(0, 7),
    "xcmp_open_request_ttl": st.integers(0, 3),
    "xcmp_condemned_sessions": st.integers(0, 3),
}
GENEROUS = {
    "xcmp_channel_capacity": 8,
    "xcmp_max_outbound_channels": 3,
    "xcmp_sender_deposit": 5,
    "xcmp_recipient_deposit": 3,
    "xcmp_open_request_ttl": 2,
    "xcmp_condemned_sessions": 3,
}
PAIRS = [(sender, recipient) for sender in PARAS for recipient in PARAS if sender != recipient]

paras = st.sampled_from((*PARAS, *PARAS, NOBODY))
roots = st.sampled_from(("01" * 32, "02" * 32, "ff" * 32))


class XcmpMachine(RuleBasedStateMachine):
    """Every rule gives the same input to both sides and compares the results; the invariants compare the states."""

    rules: LaneRules

    @initialize(
        balance=st.sampled_from((4, 12, 1000)),
        absent=st.sets(st.sampled_from(PARAS), max_size=1),
        config=st.just({}) | st.fixed_dictionaries({}, optional=LIMITS),
        unlimited=st.booleans(),
        on_inclusion=st.booleans(),
        channels=st.lists(st.sampled_from(PAIRS), min_size=3, max_size=8, unique=True),
    )
    def genesis(
        self,
        balance: int,
        absent: set[int],
        config: dict[str, int],
        unlimited: bool,
        on_inclusion: bool,
        channels: list[tuple[int, int]],
    ) -> None:
        genesis = [{"para_id": para, "balance": balance} for para in PARAS if para not in absent]
        self.settings = ChainSettings(
            XcmpConfiguration(**GENEROUS),
            tuple(map(para_of, genesis)),
            balances=Balances.UNLIMITED if unlimited else Balances.LEDGER,
            enactment=Enactment.ON_INCLUSION if on_inclusion else Enactment.IMMEDIATE,
        )
        self.rules = XCMP.at_genesis(self.settings)
        self.naive = NaiveXcmp(GENEROUS, genesis, unlimited=unlimited, on_inclusion=on_inclusion)
        self.begin(1, [], [])
        for sender, recipient in channels:
            self.open(sender, recipient)
        self.change({"new_config": config})
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
            index = len(self.naive.requests) - 1
            self.request({"kind": "accept_open_channel", "origin": recipient, "index": index})

    @rule(origin=paras, recipient=paras)
    def init_open_channel(self, origin: int, recipient: int) -> None:
        self.request({"kind": "init_open_channel", "origin": origin, "recipient": recipient})

    @rule(pair=st.sampled_from(PAIRS))
    def open_channel(self, pair: tuple[int, int]) -> None:
        self.open(*pair)

    @rule(data=st.data(), origin=paras, sender=paras, index=st.integers(0, 4), by_sender=st.booleans())
    def accept_open_channel(self, data: st.DataObject, origin: int, sender: int, index: int, by_sender: bool) -> None:
        if self.naive.requests and data.draw(st.booleans(), label="one that is there"):
            index = data.draw(st.integers(0, len(self.naive.requests) - 1))
            sender = self.naive.requests[index]["sender"]
            origin = data.draw(st.sampled_from((self.naive.requests[index]["recipient"], origin)))
        name = {"sender": sender} if by_sender else {"index": index}
        self.request({"kind": "accept_open_channel", "origin": origin, **name})

    @rule(data=st.data(), origin=paras, sender=paras, recipient=paras)
    def close_channel_to(self, data: st.DataObject, origin: int, sender: int, recipient: int) -> None:
        if self.naive.channels and data.draw(st.booleans(), label="one that is there"):
            channel = data.draw(st.sampled_from(self.naive.channels))
            sender, recipient = channel["sender"], channel["recipient"]
            origin = data.draw(st.sampled_from((sender, recipient, origin)))
        self.request({"kind": "close_channel", "origin": origin, "sender": sender, "recipient": recipient})

    @rule(data=st.data(), origin=paras, sender=paras, index=st.integers(0, 3))
    def close_channel(self, data: st.DataObject, origin: int, sender: int, index: int) -> None:
        if self.naive.channels and data.draw(st.integers(0, 3), label="one that is there unless 0"):
            channel = data.draw(st.sampled_from(self.naive.channels))
            sender = channel["sender"]
            index = self.naive.row(sender).index(channel)
            origin = data.draw(st.sampled_from((sender, channel["recipient"], origin)))
        self.request({"kind": "close_channel", "origin": origin, "sender": sender, "index": index})

    # --- messages ---

    @rule(para=paras, msg=st.sampled_from(("", "aa", "0102")))
    def downward(self, para: int, msg: str) -> None:
        effects = self.rules.apply_downward(DownwardMessage(para, bytes.fromhex(msg)))
        self.naive.downward(para, msg)
        assert [(each.recipient, each.mqc_head) for each in effects.messages] == [(para, self.naive.dmq_heads[para])]

    def candidate(self, candidate: Json) -> None:
        if any(item["candidate"]["para_id"] == candidate["para_id"] for item in self.naive.pending):
            return  # a para has one candidate pending at a time on a chain: router_rules 1.1
        read = read_candidate(Node(candidate, "candidate"), self.now)
        assert result_of(self.rules.apply_candidate, read) == self.naive.candidate(candidate)

    @rule(
        data=st.data(), senders=st.lists(st.sampled_from(PARAS), min_size=1, max_size=4), gap=st.sampled_from((1, 1, 3))
    )
    def traffic(self, data: st.DataObject, senders: list[int], gap: int) -> None:
        """A block of candidates that are good in themselves, and the next block."""
        for para in senders:
            row = self.naive.row(para)
            bits = "".join(
                data.draw(st.sampled_from("011")) if not self.naive.is_condemned(para, channel["recipient"]) else "0"
                for channel in row
            )
            unread = [place for place in self.naive.unread(para) if place[0] < self.now]
            mark = data.draw(st.sampled_from([*unread, [self.now - 1, ALL]]))
            self.candidate(
                {
                    "para_id": para,
                    "relay_parent_number": self.now - 1,
                    "watermark": mark,
                    "bitfield": bits,
                    "message_root": data.draw(roots) if "1" in bits else None,
                }
            )
        self.next_block(data, gap)

    @rule(data=st.data(), para=paras)
    def odd_candidate(self, data: st.DataObject, para: int) -> None:
        """A candidate close to the boundary of what the state allows, on either side of it."""
        if self.naive.watermarks and data.draw(st.booleans(), label="one with a watermark"):
            para = data.draw(st.sampled_from(sorted(self.naive.watermarks)))
        last = self.naive.watermarks.get(para, [0, 0])
        places = [*self.naive.unread(para), last, last, [last[0], last[1] - 1 if last[1] else 0], [self.now, 0]]
        parent = data.draw(st.sampled_from((self.now - 1, self.now - 1, self.now, last[0], max(0, last[0] - 1))))
        length = data.draw(st.sampled_from((0, 0, *(len(self.naive.row(para)) + more for more in (0, 0, 1)))))
        self.candidate(
            {
                "para_id": para,
                "relay_parent_number": parent,
                "watermark": data.draw(st.sampled_from([*places, [parent, ALL], [parent, ALL]])),
                "bitfield": data.draw(st.text("01", min_size=length, max_size=length)),
                "message_root": data.draw(st.none() | roots | roots),
            }
        )

    # --- ends of blocks ---

    @rule(data=st.data(), gap=st.sampled_from((1, 1, 2)))
    def end_block(self, data: st.DataObject, gap: int) -> None:
        self.next_block(data, gap)

    @rule(
        data=st.data(),
        outgoing=st.lists(paras, max_size=2),
        onboarding=st.lists(st.fixed_dictionaries({"para_id": paras, "balance": st.integers(0, 20)}), max_size=2),
        new_config=st.just({}) | st.fixed_dictionaries({}, optional=LIMITS),
    )
    def end_session(
        self, data: st.DataObject, outgoing: list[int], onboarding: list[Json], new_config: dict[str, int]
    ) -> None:
        self.change({"outgoing": outgoing, "onboarding": onboarding, "new_config": new_config})
        self.next_block(data, 1)

    @rule(data=st.data())
    def end_quiet_session(self, data: st.DataObject) -> None:
        self.change({})
        self.next_block(data, 1)

    @rule(data=st.data(), pair=st.sampled_from(PAIRS))
    def close_used_channel(self, data: st.DataObject, pair: tuple[int, int]) -> None:
        """Something is sent over a channel with a close request; sessions end, and senders keep using the channel."""
        if self.naive.channel(*pair) is None:
            return
        self.send(pair)
        self.next_block(data, 1)
        close = {"kind": "close_channel", "origin": pair[1], "sender": pair[0], "recipient": pair[1]}
        self.request(close)
        for _ in range(data.draw(st.integers(1, 3))):
            self.change({})
            self.next_block(data, 1)
            self.send(pair)
            self.request(close)

    @rule(data=st.data(), pair=st.sampled_from(PAIRS), back=st.sampled_from((0, 0, 1)))
    def stay_behind(self, data: st.DataObject, pair: tuple[int, int], back: int) -> None:
        """A recipient whose watermark stays or goes back while something is sent to it."""
        mark = [self.now - 1, 7]
        candidate = {"para_id": pair[1], "relay_parent_number": self.now - 1, "watermark": mark, "bitfield": ""}
        self.candidate({**candidate, "message_root": None})
        self.send(pair)
        self.next_block(data, 1)
        candidate |= {"relay_parent_number": self.now - 1, "watermark": [mark[0], mark[1] - back]}
        self.candidate({**candidate, "message_root": None})

    def send(self, pair: tuple[int, int]) -> None:
        """Try to send over one channel."""
        bits = "".join("01"[channel["recipient"] == pair[1]] for channel in self.naive.row(pair[0]))
        self.candidate(
            {
                "para_id": pair[0],
                "relay_parent_number": self.now - 1,
                "watermark": [self.now - 1, ALL],
                "bitfield": bits,
                "message_root": "aa" * 32,
            }
        )

    def change(self, change: Json) -> None:
        self.rules.change_session(session_change_of(change, MAXIMA))
        self.naive.session_change(change)
        assert self.rules.session == self.naive.session

    def next_block(self, data: st.DataObject, gap: int) -> None:
        events = [
            (
                event.event.value,
                event.sender,
                event.recipient,
                event.sender_deposit,
                event.recipient_deposit,
                event.reason,
                event.dropped,
            )
            for event in self.rules.env.events.events
        ]
        assert events == self.naive.events
        self.compare()
        included: list[Json] = []
        timed_out: list[Json] = []
        for item in self.naive.pending:
            named = data.draw(st.sampled_from((item["backed_at"], None, item["backed_at"] + 1)))
            entry = {"para_id": item["candidate"]["para_id"], "backed_at": named}
            data.draw(st.sampled_from((included, included, timed_out, [])), label="becomes of it").append(entry)
        self.begin(self.now + gap, included, timed_out)

    # --- restarts ---

    @rule()
    def restart(self) -> None:
        """Continue with rules restored from the pages that a chain saves: the common ones, and those of changed owners."""
        saved = {owner: page for owner in self.rules.owners() if (page := self.rules.page(owner)) is not None}
        before = pages(self.rules)
        events = self.rules.env.events.events
        self.rules = restored(self.rules, self.settings.enactment)
        assert pages(self.rules) == before
        assert list(self.rules.changed()) == []
        assert {owner: self.rules.page(owner) for owner in saved} == saved
        self.rules.begin_block(self.now)
        self.rules.env.events.events.extend(events)

    @precondition(lambda self: hasattr(self, "rules"))
    @invariant()
    def compare(self) -> None:
        expected: dict[str, Any] = self.naive.state()
        assert view(self.rules.state) == expected
        check_everything(self.rules, "xcmp")

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


XcmpMachine.TestCase.settings = settings(examples(150), stateful_step_count=40)
TestXcmp = XcmpMachine.TestCase
