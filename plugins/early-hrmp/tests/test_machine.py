# SPDX-License-Identifier: Apache-2.0
"""The rules compared with the naive model, step by step: every result, every event, the full state, and everything derived from it.

Limits are tiny and paras are few, so interactions are frequent: full and sealed channels, paras that leave with open requests and return
under the same id, candidates that are enacted sessions after their acceptance.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from validator_early_hrmp.rules import EARLY_HRMP
from validator_early_hrmp.state import EarlyHrmpConfiguration
from validator_early_hrmp.traces import read_candidate, read_request, view
from validator_simulators import accepted
from validator_simulators.early_hrmp.model import NaiveEarlyHrmp

from tests.hypothesis_profile import examples
from tests.rule_sets import Json, check_everything
from validator.core.rules import LaneRules, pages
from validator.plugin.protocol_api import (
    Balances,
    ChainSettings,
    ChannelHeadroom,
    DownwardMessage,
    Effects,
    Enactment,
    Node,
    Para,
    ParaHeadroom,
    PendingRef,
    SessionChange,
    Violation,
)

PARAS = (1, 2, 3, 4)
NOBODY = 99

LIMITS = {
    "hrmp_channel_max_places": st.integers(0, 3),
    "hrmp_channel_max_size": st.integers(0, 7),
    "hrmp_max_outbound_channels": st.integers(0, 3),
    "hrmp_sender_deposit": st.integers(0, 7),
    "hrmp_recipient_deposit": st.integers(0, 7),
    "hrmp_open_request_ttl": st.integers(0, 4),
}
GENEROUS = {
    "hrmp_channel_max_places": 3,
    "hrmp_channel_max_size": 6,
    "hrmp_max_outbound_channels": 2,
    "hrmp_sender_deposit": 5,
    "hrmp_recipient_deposit": 3,
    "hrmp_open_request_ttl": 2,
}

paras = st.sampled_from((*PARAS, *PARAS, NOBODY))
pairs = st.sampled_from([(sender, recipient) for sender in PARAS for recipient in PARAS if sender != recipient])
payloads = st.binary(max_size=4).map(bytes.hex)
onboardings = st.fixed_dictionaries({"para_id": paras, "balance": st.integers(0, 30)})
new_configs = st.none() | st.fixed_dictionaries({}, optional=LIMITS)


class EarlyHrmpMachine(RuleBasedStateMachine):
    """Every rule gives the same input to both sides and compares the results; the invariants compare the states."""

    rules_: LaneRules
    naive: NaiveEarlyHrmp

    @initialize(
        balance=st.sampled_from((8, 10, 40, 1000)),
        absent=st.sets(st.sampled_from(PARAS), max_size=1),
        config=st.just({}) | st.fixed_dictionaries({}, optional=LIMITS),
        unlimited=st.booleans(),
        on_inclusion=st.booleans(),
        first_block=st.integers(1, 100),
        channels=st.lists(pairs, min_size=3, max_size=6, unique=True),
    )
    def genesis(
        self,
        balance: int,
        absent: set[int],
        config: Json,
        unlimited: bool,
        on_inclusion: bool,
        first_block: int,
        channels: list[tuple[int, int]],
    ) -> None:
        genesis = [{"para_id": para, "balance": balance} for para in PARAS if para not in absent]
        self.enactment = Enactment.ON_INCLUSION if on_inclusion else Enactment.IMMEDIATE
        self.rules_ = EARLY_HRMP.at_genesis(
            ChainSettings(
                EarlyHrmpConfiguration(**GENEROUS),
                tuple(Para(para["para_id"], balance=para["balance"]) for para in genesis),
                balances=Balances.UNLIMITED if unlimited else Balances.LEDGER,
                enactment=self.enactment,
            )
        )
        self.naive = NaiveEarlyHrmp(GENEROUS, genesis, unlimited=unlimited, waits=on_inclusion)
        self.emitted: dict[Any, Any] = {}
        self.saved: dict[int, bytes] = {}
        self.begin(first_block, [], [])
        for sender, recipient in channels:
            self.request({"kind": "init_open_channel", "origin": sender, "recipient": recipient})
            self.request({"kind": "accept_open_channel", "origin": recipient, "sender": sender})
        self.change_session({"new_config": config})
        self.begin(first_block + 1, [], [])

    def begin(self, block: int, included: list[Json], timed_out: list[Json]) -> None:
        self.now = block
        self.rules_.begin_block(block)
        results = [result_of(self.rules_.apply_inclusion, PendingRef(**entry))[0] for entry in included]
        results += [result_of(self.rules_.apply_timeout, PendingRef(**entry))[0] for entry in timed_out]
        assert results == self.naive.begin_block(block, included, timed_out)

    # --- requests ---

    def request(self, request: Json) -> None:
        result, effects = result_of(self.rules_.apply_request, read_request(Node(request, "request")))
        assert result == self.naive.request(request)
        if effects is not None and request["kind"] == "init_open_channel":
            boundaries = max(1, self.naive.config["hrmp_open_request_ttl"])
            assert effects == Effects(expires_session=self.naive.session + boundaries)
        elif effects is not None:
            assert effects == Effects(effective_session=self.naive.session + 1)

    @rule(origin=paras, recipient=paras)
    def init_open_channel(self, origin: int, recipient: int) -> None:
        self.request({"kind": "init_open_channel", "origin": origin, "recipient": recipient})

    @rule(pair=pairs, accept=st.booleans())
    def open_channel(self, pair: tuple[int, int], accept: bool) -> None:
        self.request({"kind": "init_open_channel", "origin": pair[0], "recipient": pair[1]})
        if accept:
            self.request({"kind": "accept_open_channel", "origin": pair[1], "sender": pair[0]})

    @rule(data=st.data(), origin=paras)
    def accept_open_channel(self, data: st.DataObject, origin: int) -> None:
        index = data.draw(st.integers(0, len(self.naive.requests)), label="index")
        if index < len(self.naive.requests) and data.draw(st.booleans(), label="by its recipient"):
            origin = self.naive.requests[index]["recipient"]
        self.request({"kind": "accept_open_channel", "origin": origin, "index": index})

    @rule(origin=paras, sender=paras)
    def accept_open_channel_from(self, origin: int, sender: int) -> None:
        self.request({"kind": "accept_open_channel", "origin": origin, "sender": sender})

    @rule(data=st.data(), origin=paras, pair=st.tuples(paras, paras))
    def close_channel(self, data: st.DataObject, origin: int, pair: tuple[int, int]) -> None:
        there = sorted((each["sender"], each["recipient"]) for each in self.naive.channels)
        if there and data.draw(st.integers(0, 3), label="one that is there unless 0"):
            pair = data.draw(st.sampled_from(there))
            origin = data.draw(st.sampled_from((*pair, origin)))
        self.request({"kind": "close_channel", "origin": origin, "sender": pair[0], "recipient": pair[1]})

    @rule(data=st.data(), fill=st.booleans(), gone=st.booleans())
    def close_in_full(self, data: st.DataObject, fill: bool, gone: bool) -> None:
        """A channel is closed with or without a message in it; after the close takes effect, something else happens to it."""
        there = sorted((each["sender"], each["recipient"]) for each in self.naive.channels)
        if not there:
            return
        sender, recipient = data.draw(st.sampled_from(there))
        if fill:
            message = {"sender": sender, "recipient": recipient, "payload": ""}
            self.candidate({"para_id": sender, "dmq_watermark": self.now - 1, "hrmp_messages": [message]})
        self.request({"kind": "close_channel", "origin": sender, "sender": sender, "recipient": recipient})
        self.change_session({"outgoing": [recipient]} if gone else {})
        self.next_block(data, 1)
        self.request({"kind": "close_channel", "origin": recipient, "sender": sender, "recipient": recipient})
        if data.draw(st.booleans(), label="drained"):
            self.candidate({"para_id": recipient, "dmq_watermark": self.now - 1, "hrmp_messages": []})

    # --- messages ---

    @rule(para=paras, msg=payloads)
    def downward(self, para: int, msg: str) -> None:
        effects = self.rules_.apply_downward(DownwardMessage(para, bytes.fromhex(msg)))
        assert effects == Effects(messages=(self.naive.downward(para, msg),))

    def candidate(self, candidate: Json) -> None:
        if any(item["candidate"]["para_id"] == candidate["para_id"] for item in self.naive.pending):
            return  # a para has one candidate pending at a time
        made = read_candidate(Node(candidate, "candidate"), self.now)
        result, effects = result_of(self.rules_.apply_candidate, made)
        before = dict(self.naive.heads)
        assert result == self.naive.candidate(candidate)
        if effects is None:
            return
        assert effects.enacted != self.naive.waits
        places = [message["recipient"] for message in candidate["hrmp_messages"]] if effects.enacted else []
        assert effects.messages == tuple((to, *self.naive.heads[to]) for to in places)
        assert all(self.naive.heads[to][0] == before.get(to, (0,))[0] + 1 for to in places)

    @rule(data=st.data(), candidates_of=st.lists(st.sampled_from(PARAS), min_size=1, max_size=5))
    def traffic(self, data: st.DataObject, candidates_of: list[int]) -> None:
        """A block of candidates, and the next block."""
        for para in candidates_of:
            if data.draw(st.integers(0, 3), label="good unless 0"):
                self.good_candidate(data, para)
            else:
                self.plausible_candidate(data, para)
        self.next_block(data, 1)

    @rule(data=st.data(), para=paras)
    def odd_candidate(self, data: st.DataObject, para: int) -> None:
        self.plausible_candidate(data, para)

    def good_candidate(self, data: st.DataObject, para: int) -> None:
        """A candidate whose channels have room and whose watermark is valid, if the state allows it."""
        roomy = [to for to in self.naive.egress(para) if self.naive.channel_headroom(para, to)[1]]
        sent_to = sorted(data.draw(st.sets(st.sampled_from(roomy)))) if roomy else []
        last = self.naive.watermarks.get(para, -1)
        landings = [block for block in self.naive.landings(para) if last < block < self.now]
        messages = []
        for to in sent_to:
            payload = data.draw(payloads)[: 2 * self.naive.channel_headroom(para, to)[2]]
            messages.append({"sender": para, "recipient": to, "payload": payload})
        watermark = data.draw(st.sampled_from((self.now - 1, *landings)))
        self.candidate({"para_id": para, "dmq_watermark": watermark, "hrmp_messages": messages})

    def plausible_candidate(self, data: st.DataObject, para: int) -> None:
        """A candidate close to the boundary of what the state allows, on either side of it."""
        last = self.naive.watermarks.get(para, 0)
        recipients = [*self.naive.egress(para), *data.draw(st.lists(paras, max_size=1), label="anybody")]
        sent_to = data.draw(st.lists(st.sampled_from(recipients), max_size=3)) if recipients else []
        if data.draw(st.integers(0, 4), label="sorted unless 0"):
            sent_to = sorted(set(sent_to))
        landings = (self.now - 1, self.now - 1, *self.naive.landings(para), last, last + 1)
        self.candidate(
            {
                "para_id": para,
                "relay_parent_number": data.draw(st.sampled_from((None, None, None, self.now, self.now - 1, last + 1))),
                "dmq_watermark": data.draw(st.sampled_from(landings)),
                "hrmp_messages": [
                    {
                        "sender": data.draw(st.sampled_from((para, para, para, para, NOBODY))),
                        "recipient": to,
                        "payload": data.draw(payloads),
                    }
                    for to in sent_to
                ],
            }
        )

    # --- ends of blocks ---

    @rule(data=st.data(), gap=st.sampled_from((1, 1, 1, 2, 5)))
    def end_block(self, data: st.DataObject, gap: int) -> None:
        self.next_block(data, gap)

    @rule(
        data=st.data(),
        outgoing=st.lists(paras, max_size=2),
        onboarding=st.lists(onboardings, max_size=2),
        new_config=new_configs,
    )
    def end_session(
        self, data: st.DataObject, outgoing: list[int], onboarding: list[Json], new_config: Json | None
    ) -> None:
        self.change_session({"outgoing": outgoing, "onboarding": onboarding, "new_config": new_config})
        self.next_block(data, 1)

    @rule(data=st.data())
    def end_quiet_session(self, data: st.DataObject) -> None:
        self.change_session({})
        self.next_block(data, 1)

    @rule(data=st.data(), para=st.sampled_from(PARAS), at_once=st.booleans())
    def use_an_id_again(self, data: st.DataObject, para: int, at_once: bool) -> None:
        """A para leaves and returns, and opens its channels again while its old messages wait."""
        recipients = self.naive.egress(para)
        back = [{"para_id": para, "balance": 30}]
        self.change_session({"outgoing": [para], "onboarding": back if at_once else []})
        self.next_block(data, 1)
        if not at_once:
            self.change_session({"onboarding": back})
            self.next_block(data, 1)
        for recipient in recipients:
            self.open_channel((para, recipient), accept=True)

    def change_session(self, change: Json) -> None:
        paras_ = tuple(Para(para["para_id"], balance=para["balance"]) for para in change.get("onboarding") or ())
        new_config = tuple((change.get("new_config") or {}).items())
        self.rules_.change_session(SessionChange(tuple(change.get("outgoing") or ()), paras_, new_config))
        self.naive.session_change(change)
        self.compare()

    def next_block(self, data: st.DataObject, gap: int) -> None:
        self.check_events()
        if data.draw(st.booleans(), label="headroom is emitted"):
            self.headroom()
        if data.draw(st.booleans(), label="pages are saved"):
            self.save()
        included: list[Json] = []
        timed_out: list[Json] = []
        for item in self.naive.pending:
            named = data.draw(st.sampled_from((item["backed_at"], None, item["backed_at"] + 1)))
            entry = {"para_id": item["candidate"]["para_id"], "backed_at": named}
            data.draw(st.sampled_from((included, included, timed_out, [])), label="becomes of it").append(entry)
        self.begin(self.now + gap, included, timed_out)

    def check_events(self) -> None:
        events = self.rules_.env.events.events
        assert [(event.block, event.index) for event in events] == [(self.now, at) for at in range(len(events))]
        assert [tuple(event[2:]) for event in events] == self.naive.events

    # --- restarts, and headroom and pages that are taken incrementally ---

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """Continue with rules that are restored from the pages of these, at the end of a block."""
        self.check_events()
        before = pages(self.rules_)
        self.rules_ = EARLY_HRMP.from_pages(before, self.rules_.settings)
        assert pages(self.rules_) == before
        for owner, page in ((owner, self.rules_.page(owner)) for owner in self.rules_.owners()):
            self.keep(owner, page)  # a lane is restored from saved pages
        for owner in set(self.saved) - set(self.rules_.owners()):
            del self.saved[owner]
        self.begin(self.now + 1, [], [])

    @rule()
    def root(self) -> None:
        assert self.rules_.state_root() == EARLY_HRMP.root_of(self.rules_.state)

    @rule()
    def save(self) -> None:
        """Save only the changed pages."""
        for owner in self.rules_.changed():
            self.keep(owner, self.rules_.page(owner))
        self.rules_.mark_saved()
        assert not self.rules_.changed()
        pages = {owner: page for owner in self.rules_.owners() if (page := self.rules_.page(owner)) is not None}
        assert self.saved == pages

    def keep(self, owner: int, page: bytes | None) -> None:
        if page is None:
            self.saved.pop(owner, None)
        else:
            self.saved[owner] = page

    @rule()
    def headroom(self) -> None:
        """Take the changed headroom. Together with the earlier headroom it must equal the full headroom."""
        for each in self.rules_.take_headroom():
            if isinstance(each, ChannelHeadroom):
                assert each.message_size_max == each.bytes_left
                self.emitted[each.sender, each.recipient] = (each.open, each.places_left, each.bytes_left)
            else:
                assert isinstance(each, ParaHeadroom)
                assert (each.upward_count_left, each.upward_bytes_left) == (0, 0)
                self.emitted[each.para_id] = (each.valid, each.downward_pending, each.watermark, each.valid_watermarks)
        for para in (*PARAS, NOBODY):
            assert self.emitted.get(para, (False, 0, None, ())) == self.naive.para_headroom(para)
        for sender in (*PARAS, NOBODY):
            for recipient in (*PARAS, NOBODY):
                emitted = self.emitted.get((sender, recipient), (False, 0, 0))
                assert emitted == self.naive.channel_headroom(sender, recipient)
        assert self.rules_.take_headroom() == []

    @precondition(lambda self: hasattr(self, "rules_"))
    @invariant()
    def compare(self) -> None:
        assert view(self.rules_.state) == self.naive.state()
        assert self.rules_.session == self.naive.session
        check_everything(self.rules_, "early-hrmp")

    def teardown(self) -> None:
        if hasattr(self, "rules_"):
            self.save()
            check_everything(self.rules_, "early-hrmp")


def result_of(apply: Any, item: Any) -> tuple[Json, Effects | None]:
    try:
        effects = apply(item)
        return accepted([each._asdict() for each in effects.received]), effects
    except Violation as violation:
        return {"ok": False, "error": {"kind": violation.kind, **violation.details()}}, None


EarlyHrmpMachine.TestCase.settings = settings(examples(200), stateful_step_count=40)
TestEarlyHrmp = EarlyHrmpMachine.TestCase
