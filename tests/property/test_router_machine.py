# SPDX-License-Identifier: Apache-2.0
"""The Router against the naive model, step by step: the test compares every result with its fields, and the state after every step.

Limits are tiny and paras few, so that rare cases are frequent: full queues and channels, paras that leave with open requests and return,
candidates that are enacted several sessions after they were accepted. The chain's rules change at drawn heights, to each feature alone, to
all of them, to any set, to a profile.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from validator_simulators.router.model import NaiveRouter

from tests.hypothesis_profile import examples
from tests.property.meddling import MeddlingDispatcher
from tests.property.router_inputs import (
    ENDS,
    FAILING,
    GENEROUS,
    LIMITS,
    PARAS,
    WEIGHTS,
    Met,
    changes_of_rules,
    epochs_of,
    headroom_of,
    kinds,
    later_request_of,
    missed,
    new_configs,
    onboardings,
    paras,
    payloads,
    quiet_candidate,
    service_of,
    sizes,
    upward,
)
from tests.property.shapes import (
    Json,
    candidate_of,
    downward_of,
    para_of,
    pending_of,
    request_of,
    result_of,
    session_change_of,
)
from validator.core.outcomes import MessageRange, ParaHeadroom
from validator.core.rules import ChainSettings, LaneRules, pages
from validator.core.types import Balances, Enactment
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.encoding import decode_state, encode_state
from validator.protocols.router.invariants import check_invariants
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.traces import view

MET = Met()
"""What the examples have met so far."""


class RouterMachine(RuleBasedStateMachine):
    """Every rule gives the same input to both and compares the results; the invariants compare the states."""

    router: LaneRules
    naive: NaiveRouter

    @initialize(
        kinds=st.lists(kinds, min_size=len(PARAS), max_size=len(PARAS)),
        balance=st.sampled_from((9, 40, 1000)),
        absent=st.sets(st.sampled_from(PARAS), max_size=2),
        config=st.just({}) | st.fixed_dictionaries({}, optional=LIMITS),
        notifications=st.booleans(),
        unlimited=st.booleans(),
        on_inclusion=st.booleans(),
        first_block=st.integers(1, 100),
        changes=changes_of_rules,
        conversations=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(ENDS)), min_size=1, max_size=3),
        data=st.data(),
        channels=st.lists(
            st.sampled_from([(s, r) for s in PARAS for r in PARAS if s != r]), min_size=3, max_size=8, unique=True
        ),
    )
    def genesis(
        self,
        kinds: list[str],
        balance: int,
        absent: set[int],
        config: dict[str, int],
        notifications: bool,
        unlimited: bool,
        on_inclusion: bool,
        first_block: int,
        changes: list[Json],
        conversations: list[tuple[int, str]],
        data: st.DataObject,
        channels: list[tuple[int, int]],
    ) -> None:
        genesis = [
            {"para_id": para, "kind": kind, "balance": balance}
            for para, kind in zip(PARAS, kinds, strict=True)
            if para not in absent
        ]
        self.dispatcher = MeddlingDispatcher(
            {bytes.fromhex(payload): weight for payload, weight in WEIGHTS.items()},
            1,
            frozenset(bytes.fromhex(payload) for payload in FAILING),
        )
        rules = [{**change, "from_block": first_block + change["from_block"]} for change in changes]
        self.epochs = epochs_of(rules)
        self.enactment = Enactment.ON_INCLUSION if on_inclusion else Enactment.IMMEDIATE
        self.router = ROUTER.at_genesis(
            ChainSettings(
                HostConfiguration(**GENEROUS),
                tuple(para_of(para) for para in genesis),
                balances=Balances.UNLIMITED if unlimited else Balances.LEDGER,
                notifications=notifications,
                upward_messages=self.dispatcher,
                enactment=self.enactment,
                rules=self.epochs,
            )
        )
        self.naive = NaiveRouter(
            GENEROUS,
            genesis,
            ump_weights=WEIGHTS,
            ump_failing_messages=FAILING,
            notifications=notifications,
            enactment="on-inclusion" if on_inclusion else "immediate",
            unlimited_balances=unlimited,
            rules=rules,
        )
        self.emitted: dict[tuple[int, ...], Json] = {}
        self.begin(first_block, [], [])
        for sender, recipient in channels:
            arguments = {"origin": sender, "recipient": recipient, "max_places": 3, "max_message_size": 4}
            self.request({"kind": "init_open_channel", **arguments})
            self.request({"kind": "accept_open_channel", "origin": recipient, "sender": sender})
        self.router.change_session(session_change_of({"new_config": config}))
        self.naive.session_change({"new_config": config})
        self.begin(first_block + 1, [], [])
        for blocks, end in conversations:
            if self.naive.channels:
                self.converse(data, blocks, end)

    def begin(self, block: int, included: list[Json], timed_out: list[Json]) -> None:
        met = MET.before(self.naive)
        self.router.begin_block(block, getattr(self, "now", block - 1))
        self.now = block
        results = [result_of(self.router.apply_inclusion, pending_of(entry)) for entry in included]
        results += [result_of(self.router.apply_timeout, pending_of(entry)) for entry in timed_out]
        assert results == self.naive.begin_block(block, included, timed_out)
        met.after(results)

    # --- requests ---

    def request(self, request: Json) -> None:
        assert result_of(self.router.apply_request, request_of(request)) == self.naive.request(request)

    @rule(origin=paras, recipient=paras, **sizes)
    def init_open_channel(self, **arguments: int) -> None:
        self.request({"kind": "init_open_channel", **arguments})

    @rule(sender=st.sampled_from(PARAS), recipient=st.sampled_from(PARAS), accept=st.booleans())
    def open_channel(self, sender: int, recipient: int, accept: bool) -> None:
        arguments = {"origin": sender, "recipient": recipient, "max_places": 3, "max_message_size": 4}
        self.request({"kind": "init_open_channel", **arguments})
        if accept:
            self.request({"kind": "accept_open_channel", "origin": recipient, "sender": sender})

    @rule(data=st.data(), origin=paras, sender=paras)
    def accept_open_channel(self, data: st.DataObject, origin: int, sender: int) -> None:
        if self.naive.requests and data.draw(st.booleans(), label="one that is there"):
            sender, origin = data.draw(st.sampled_from(sorted(self.naive.requests)))
        self.request({"kind": "accept_open_channel", "origin": origin, "sender": sender})

    @rule(data=st.data(), origin=paras, channel=st.tuples(paras, paras))
    def close_channel(self, data: st.DataObject, origin: int, channel: tuple[int, int]) -> None:
        if self.naive.channels and data.draw(st.booleans(), label="one that is there"):
            channel = data.draw(st.sampled_from(sorted(self.naive.channels)))
            origin = data.draw(st.sampled_from((*channel, origin)))
        self.request({"kind": "close_channel", "origin": origin, "channel": list(channel)})

    @rule(para=paras)
    def schedule_para_cleanup(self, para: int) -> None:
        self.request({"kind": "schedule_para_cleanup", "para_id": para})

    @rule(data=st.data(), count=st.integers(1, 3))
    def later_requests(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            self.request(later_request_of(data.draw, self.naive))

    @precondition(lambda self: self.naive.queue is not None and self.naive.queue.overweight())
    @rule(data=st.data())
    def service_overweight(self, data: st.DataObject) -> None:
        self.request(service_of(data.draw, self.naive))

    # --- messages ---

    @rule(para=paras, msg=payloads)
    def downward(self, para: int, msg: str) -> None:
        message = {"para_id": para, "msg": msg}
        assert result_of(self.router.apply_downward, downward_of(message)) == self.naive.downward(message)

    def candidate(self, candidate: Json) -> Json:
        if any(item["candidate"]["para_id"] == candidate["para_id"] for item in self.naive.pending):
            return {}  # a para has one pending candidate at a time: router_rules 1.1
        met = MET.before(self.naive)
        result = result_of(self.router.apply_candidate, candidate_of(candidate, self.now))
        assert result == self.naive.candidate(candidate)
        met.after([result], candidate)
        return result

    @rule(
        data=st.data(),
        requests=st.integers(0, 3),
        candidates_of=st.lists(st.sampled_from(PARAS), min_size=1, max_size=5),
    )
    def traffic(self, data: st.DataObject, requests: int, candidates_of: list[int]) -> None:
        """Play a block of requests and candidates, and the next block."""
        for _ in range(requests):
            self.request(later_request_of(data.draw, self.naive))
        for para in candidates_of:
            if data.draw(st.integers(0, 3), label="good unless 0"):
                self.good_candidate(data, para)
            else:
                self.plausible_candidate(data, para)
        self.dispatch()
        self.next_block(data, 1)

    @precondition(lambda self: self.naive.channels)
    @rule(data=st.data(), blocks=st.integers(1, 5), end=st.sampled_from(ENDS))
    def converse(self, data: st.DataObject, blocks: int, end: str) -> None:
        """Send over one channel in every block, as if there were room; then receive a part or all, close it, or lose an end."""
        channel = data.draw(st.sampled_from(sorted(self.naive.channels)))
        sender, recipient = channel
        for _ in range(blocks):
            messages = [{"recipient": recipient, "data": data.draw(st.sampled_from(("", "aa", "aa", "bbbb")))}]
            self.candidate(quiet_candidate(self.naive, sender, self.now - 1, messages))
            self.dispatch()
            self.next_block(data, 1)
        if end == "prune":
            landings = [block for block, _ in self.naive.digests.get(recipient, []) if block < self.now]
            watermark = data.draw(st.sampled_from((*landings[-4:], self.now - 1)))
            self.candidate(quiet_candidate(self.naive, recipient, watermark, []))
            return
        if end == "close":
            self.request({"kind": "close_channel", "origin": recipient, "channel": list(channel)})
        self.change_session(data, {"outgoing": [recipient] if end == "leave" else []})

    @rule(data=st.data(), para=paras)
    def plausible_candidate(self, data: st.DataObject, para: int) -> None:
        """A candidate close to what the state allows, on either side of the limit."""
        waiting = len(self.naive.dmq.get(para, []))
        landings = [block for block, _ in self.naive.digests.get(para, [])]
        last = self.naive.watermarks.get(para, 0)
        recipients = [*self.naive.egress(para), *data.draw(st.lists(paras, max_size=1), label="anybody")]
        sent_to = data.draw(st.lists(st.sampled_from(recipients), max_size=4)) if recipients else []
        if data.draw(st.integers(0, 9), label="sorted unless 0"):
            sent_to.sort()
        self.candidate(
            {
                "para_id": para,
                "relay_parent_number": data.draw(st.sampled_from((None, None, None, self.now, self.now - 1, last + 1))),
                "hrmp_watermark": data.draw(st.sampled_from((self.now - 1, self.now - 1, *landings, last, last + 1))),
                "upward_messages": data.draw(st.lists(upward, max_size=3)),
                "processed_downward_messages": data.draw(
                    st.sampled_from((min(1, waiting), waiting, waiting + 1, 0)), label="processed"
                ),
                "horizontal_messages": [{"recipient": to, "data": data.draw(payloads)} for to in sent_to],
            }
        )

    def good_candidate(self, data: st.DataObject, para: int) -> None:
        """A candidate that breaks few rules: its content is reduced until it is accepted."""
        waiting = len(self.naive.dmq.get(para, []))
        recipients = self.naive.egress(para)
        sent_to = sorted(data.draw(st.sets(st.sampled_from(recipients)))) if recipients else []
        landings = [block for block, _ in self.naive.digests.get(para, []) if block < self.now]
        candidate = {
            "para_id": para,
            "hrmp_watermark": data.draw(st.sampled_from((self.now - 1, *landings))),
            "upward_messages": data.draw(st.lists(upward, max_size=2)),
            "processed_downward_messages": data.draw(st.integers(min(1, waiting), waiting)),
            "horizontal_messages": [{"recipient": to, "data": data.draw(payloads)} for to in sent_to],
        }
        for _ in range(8):
            if self.candidate(candidate).get("ok", True):
                return
            part = "horizontal_messages" if candidate["horizontal_messages"] else "upward_messages"
            candidate = {**candidate, part: candidate[part][:-1]}

    # --- ends of blocks ---

    @rule(data=st.data(), gap=st.sampled_from((1, 1, 1, 2, 5)))
    def end_block(self, data: st.DataObject, gap: int) -> None:
        self.dispatch()
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
        self.change_session(data, {"outgoing": outgoing, "onboarding": onboarding, "new_config": new_config})

    @rule(data=st.data())
    def end_quiet_session(self, data: st.DataObject) -> None:
        self.change_session(data, {})

    def change_session(self, data: st.DataObject, change: Json) -> None:
        self.dispatch()
        met = MET.before(self.naive)
        self.router.change_session(session_change_of(change))
        self.naive.session_change(change)
        met.after([])
        self.compare()
        assert self.router.state_root() == ROUTER.root_of(self.router.state)
        self.next_block(data, 1)

    def dispatch(self) -> None:
        dispatched = self.router.dispatch()
        assert [[item.para_id, item.payload.hex()] for item in dispatched] == self.naive.dispatch_round()
        for item in dispatched:
            assert item.weight == self.naive.upward_weight(item.payload.hex())
            assert (item.outcome == "failed") == (item.payload.hex() in FAILING)
        self.compare()

    def next_block(self, data: st.DataObject, gap: int) -> None:
        included: list[Json] = []
        timed_out: list[Json] = []
        for item in self.naive.pending:
            named = data.draw(st.sampled_from((item["backed_at"], None, item["backed_at"] + 1)))
            entry = {"para_id": item["candidate"]["para_id"], "backed_at": named}
            data.draw(st.sampled_from((included, included, timed_out, [])), label="becomes of it").append(entry)
        self.take_headroom()
        events = self.router.env.events.events
        dropped = [
            (each.sender, each.recipient, each.reason, [*map(MessageRange._asdict, each.dropped)])
            for each in events
            if each.dropped or each.event == "messages_dropped"
        ]
        assert sorted(dropped, key=str) == sorted(self.naive.dropped, key=str)
        self.begin(self.now + gap, included, timed_out)

    def take_headroom(self) -> None:
        """Compare everything emitted so far with what the model leaves; what has not changed may not be emitted again."""
        for item in self.router.take_headroom():
            self.emitted[tuple(item[: 1 if isinstance(item, ParaHeadroom) else 2])] = item._asdict()
        assert self.emitted == headroom_of(self.naive, self.emitted)
        assert self.router.take_headroom() == []

    # --- restarts and roots ---

    @precondition(lambda self: not self.naive.serviced)  # a block's messages are not among the pages
    @rule()
    def restart(self) -> None:
        """Continue with a Router made from the pages of this one."""
        before, events = pages(self.router), self.router.env.events.events
        self.router = ROUTER.from_pages(
            before, ChainSettings(enactment=self.enactment, upward_messages=self.dispatcher, rules=self.epochs)
        )
        assert pages(self.router) == before
        self.router.begin_block(self.now)
        self.router.env.events.events.extend(events)  # a lane restarts between blocks, and has emitted them by then

    @rule()
    def root(self) -> None:
        assert self.router.state_root() == ROUTER.root_of(self.router.state)

    @precondition(lambda self: hasattr(self, "router"))
    @invariant()
    def compare(self) -> None:
        state = self.router.state
        expected: dict[str, Any] = self.naive.state()
        assert view(state) == expected
        check_invariants(state)
        common_page, pages = encode_state(state)
        decoded = decode_state(common_page, pages.values())
        assert view(decoded) == expected
        check_invariants(decoded)
        assert ROUTER.root_of(decoded) == ROUTER.root_of(state)

    def teardown(self) -> None:
        if hasattr(self, "router"):
            assert self.router.state_root() == ROUTER.root_of(self.router.state)


def test_router_agrees_with_naive_model() -> None:
    MET.clear()
    run_state_machine_as_test(RouterMachine, settings=settings(examples(520), stateful_step_count=40))
    assert missed(MET) == {}, MET
