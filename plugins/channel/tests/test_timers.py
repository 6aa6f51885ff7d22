# SPDX-License-Identifier: Apache-2.0
"""The timers of messages in flight against a list of all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from validator_channel.delivery import Outgoing, RetransmissionTimers, new_topic
from validator_channel.limits import Settings
from validator_channel.wire import Kind, Role

SETTINGS = Settings(ack_timeout=1.0, backoff=2.0, max_ack_timeout=5.0)
TOPICS = [new_topic(topic, Role.CONNECTOR) for topic in (0, 7, 3)]
ACTS = st.tuples(st.sampled_from(["send", "settle", "retransmit", "wait"]), st.integers(0, 30))


@given(st.lists(ACTS, max_size=60))
def test_timers_follow_the_list_of_messages(acts: list[tuple[str, int]]) -> None:
    timers = RetransmissionTimers()
    flying: list[tuple[int, Outgoing]] = []
    now = 0.0

    def transmit(topic: int, message: Outgoing) -> None:
        message.transmissions += 1
        message.deadline = now + SETTINGS.interval(message.transmissions)
        timers.start(TOPICS[topic], message)

    for index, (act, number) in enumerate(acts):
        if act == "send":
            flying.append((number % 3, Outgoing(index, Kind.APPLICATION, b"", 0)))
            transmit(*flying[-1])
        elif act == "settle" and flying:
            topic, message = flying.pop(number % len(flying))
            timers.stop(TOPICS[topic], message)
        elif act == "retransmit":
            for record, message in timers.due(now):
                timers.stop(record, message)
                transmit(TOPICS.index(record), message)
        else:
            now += number / 4
        assert timers.next_deadline() == min((message.deadline for _, message in flying), default=None)
        due = [
            (message.deadline, TOPICS[topic].id, message.index) for topic, message in flying if message.deadline <= now
        ]
        assert [(message.deadline, record.id, message.index) for record, message in timers.due(now)] == sorted(due)
