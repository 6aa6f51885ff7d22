# SPDX-License-Identifier: Apache-2.0
"""Makes one process of a transport's name the active one; the others wait as standby.

The lease is membership of the transport's consumer group. A process joins if the group is empty, and is active once Kafka says that it is
the only member. If several join at once, all but the first by id leave again. The coordinator gives each member an id, never the same one
twice, and forgets it after the session timeout without a heartbeat. A process has the lease as long as Kafka knows its id, so two never
have it at once. What the active process commits names its id: Kafka refuses it once the id is forgotten.

Members take no partitions, because a group moves partitions when a member joins. A process that was frozen does not know how long: before
anything else is delivered it asks Kafka whether its id is still there.
"""

from __future__ import annotations

import socket
import time
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from validator.errors import LeaseLost, UserError
from validator.kafka.process import start_time
from validator.kafka.refusals import line_of, why
from validator.kafka.retry import ANSWER_S_MAX, answer, check, passes
from validator.kafka.settings import admin_config, member_config
from validator.plugin.limits import COMMIT_S_MAX, HEARTBEAT_MS_MAX, SESSION_MS, WATCH_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from validator.kafka.settings import KafkaTable

POLL_S: Final = 0.1
"""Seconds of one poll of the group's messages."""

JOIN_S_MAX: Final = 10.0
"""Seconds that a process which has joined waits to be the only member; then it leaves and waits as standby."""

_REBALANCING: Final = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION)
"""Another process has joined or left: the commit is repeated in the next generation. Whether this one is still a member, its id says."""

_FORGOTTEN: Final = "Kafka does not know it as a member of the group any more"

_FATAL: Final = frozenset({
    "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_FATAL",
    "INCONSISTENT_GROUP_PROTOCOL", "INVALID_SESSION_TIMEOUT",
})  # fmt: skip


class Lease:
    """The lease of one transport, and the member of its group.

    ``topic`` is any existing topic with its prefix: members of a group subscribe to something. As a context manager it leaves the group on
    exit, so that a standby takes over at once.
    """

    def __init__(self, kafka: KafkaTable, group: str, name: str, topic: str) -> None:
        self._kafka, self._group, self._name, self._topic = kafka, group, name, topic
        config = member_config(kafka, group, SESSION_MS, HEARTBEAT_MS_MAX)
        self._bootstrap = config["bootstrap.servers"]
        self._session_s = config["session.timeout.ms"] / 1000
        try:
            self._member = Consumer(config)
        except KafkaException as error:
            raise UserError(f"[kafka]: the client does not accept it: {line_of(error.args[0])}") from error
        self._admin = AdminClient(admin_config(kafka))
        self._asking = Lock()
        self._assigned = self._stable = False
        self._id: str | None = None
        """The member's id, once it has the lease."""
        self._alive_s = 0.0
        """When this process was last seen to run, or Kafka last knew the member."""
        self.reason: str | None = None
        """Why the lease is lost, in one line."""
        self.lost = Event()
        """Set once the lease is lost."""
        self._ending = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def acquire(self, stop: Event, on_standby: Callable[[str], None]) -> bool:
        """Wait until this process is the active one, or return False after a request to stop.

        ``on_standby`` is called once with the names of the group's members and when this process takes over, if there are any. An outage of
        Kafka does not end the wait.
        Raises `UserError` if Kafka refuses.
        """
        waits = False
        while not stop.is_set():
            members = self._members()
            if members and not waits:
                waits = True
                on_standby(f"{', '.join(sorted(members.values()))}; {self._when(members.values())}")
            if members == {} and self._join(stop):
                return True
            looked_s = time.monotonic()
            while time.monotonic() - looked_s < WATCH_S and not stop.is_set():
                self._poll()  # a member that leaves does so in its polls
        return False

    def check(self) -> None:
        """Raise `LeaseLost` if the lease is lost, and after a pause of this process ask Kafka first."""
        if self.reason is None and self._has_paused:
            self._ask_if_member()
        if self.reason is not None:
            raise LeaseLost(self.reason)

    def commit(self, places: Iterable[TopicPartition]) -> None:
        """Commit offsets as the active process. Raises `LeaseLost`, and `KafkaException` after `COMMIT_S_MAX`."""
        offsets = list(places)

        def attempt(_: float) -> None:
            self._check_id()
            try:
                for place in self._member.commit(offsets=offsets, asynchronous=False) or ():
                    check(place.error)
            except KafkaException as exception:
                error = exception.args[0]
                if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                    self._lose(_FORGOTTEN)
                if error.code() in _REBALANCING:
                    raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, error.str())) from exception
                raise

        try:
            answer(attempt, patience_s=COMMIT_S_MAX)
        finally:
            self._check_id()  # without its id, Kafka would have taken the commit if the group were empty

    def close(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self._member.close()

    # --- becoming active ---

    def _when(self, names: Iterable[str]) -> str:
        """Return when a standby takes over from active processes with these names."""
        if all(_has_ended(name) for name in names):
            return f"it was killed: this one takes over once Kafka has forgotten it, in at most {self._session_s:g} s"
        return f"this one takes over when it ends, or {self._session_s:g} s after it is killed"

    def _members(self) -> dict[str, str] | None:
        """Return the names of the group's members by their ids, or None if Kafka does not answer within `ANSWER_S_MAX`."""

        def ask(left_s: float) -> dict[str, str]:
            ends_s = time.monotonic() + min(left_s, ANSWER_S_MAX)
            # The groups are asked of the brokers that the client knows; this is how it learns of new ones, and forgets old ones.
            self._admin.list_topics(self._topic, timeout=min(left_s, ANSWER_S_MAX))
            found = self._admin.list_groups(self._group, timeout=max(POLL_S, ends_s - time.monotonic()))
            if not found:
                return {}
            check(found[0].error)
            self._stable = found[0].state == "Stable"
            return {each.id: f"{each.client_id} ({each.client_host.lstrip('/')})" for each in found[0].members}

        try:
            return answer(ask)
        except KafkaException as error:
            if passes(error.args[0]):
                return None
            raise self._error(error.args[0]) from error

    def _join(self, stop: Event) -> bool:
        """Join the group; return whether this is its only member, else leave it again."""
        self._assigned = False
        deadline = time.monotonic() + JOIN_S_MAX
        self._member.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        while not stop.is_set():
            self._poll()
            if not self._assigned:
                continue
            mine, members = self._member.memberid(), self._members()
            if members is None:
                continue
            if self._stable and set(members) == {mine}:
                self._id, self._alive_s = mine, time.monotonic()
                self._thread = Thread(target=self._watch, name="lease", daemon=True)
                self._thread.start()
                return True
            if mine not in members or mine != min(members) or time.monotonic() > deadline:
                break  # also if the other one has been active for longer, which does not leave
        self._member.unsubscribe()
        return False

    def _on_assign(self, member: Any, _: list[TopicPartition]) -> None:
        member.assign([])
        self._assigned = True

    def _on_revoke(self, member: Any, _: list[TopicPartition]) -> None:
        member.unassign()

    def _poll(self) -> None:
        message = self._member.poll(POLL_S)
        error = None if message is None else message.error()
        if error is not None and (error.fatal() or error.name() in _FATAL):
            raise self._error(error)

    # --- being active ---

    def _watch(self) -> None:
        """Serve the group, and notice when this process was frozen or is not a member any more. Runs in a thread of the lease."""
        while not self._ending.is_set() and self.reason is None:
            try:
                self._check_id()
                self._alive_s = time.monotonic()
                self._poll()
            except LeaseLost:
                return
            except UserError as error:
                self._lose(str(error))

    @property
    def _has_paused(self) -> bool:
        """Whether so much time has passed, as in a frozen process, that Kafka may not have had a heartbeat for the session's time."""
        return bool(time.monotonic() - self._alive_s > self._session_s / 3)

    def _check_id(self) -> None:
        """Check the lease as the client knows it, which gives up its id when Kafka does not answer for the session's time."""
        if self.reason is None and self._member.memberid() != self._id:
            self._lose(f"Kafka has had no heartbeat for {self._session_s:g} s")
        self.check()

    def _ask_if_member(self) -> None:
        with self._asking:
            asked_s = time.monotonic()
            if not self._has_paused:  # another thread has asked
                return
            members = self._members()
            if members is None:
                self._lose("Kafka does not answer whether it still knows it")
            elif self._id in members:
                self._alive_s = asked_s
            else:
                self._lose(_FORGOTTEN)

    def _lose(self, reason: str) -> None:
        if self.reason is None:
            self.reason = f"transport {self._name}: this process is not the active one any more: {reason}"
            self.lost.set()

    def _error(self, error: KafkaError) -> UserError:
        reason = why(error, self._kafka, f"Read on topic {self._topic}", group=self._group)
        return UserError(f"transport {self._name}: error from {self._bootstrap}: {reason}")


def active_processes(kafka: KafkaTable, group: str) -> list[str]:
    """Return who is a member of a transport's group: its active process, and for a moment one that joins; none if Kafka does not say."""
    try:
        found = answer(
            lambda left_s: AdminClient(admin_config(kafka)).list_groups(group, timeout=min(left_s, ANSWER_S_MAX))
        )
    except KafkaException:
        return []
    return sorted(f"{each.client_id} ({each.client_host.lstrip('/')})" for one in found for each in one.members)


def _has_ended(name: str) -> bool:
    """Return whether a member's name (`member_config`) names a process of this machine that does not exist any more."""
    host, _, pid = name.partition(" ")[0].rpartition("@")[2].rpartition(":")
    return host == socket.gethostname() and pid.isdecimal() and start_time(int(pid), reap=False) is None
