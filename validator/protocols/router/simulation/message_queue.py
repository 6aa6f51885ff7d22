# SPDX-License-Identifier: Apache-2.0
"""The naive model of upward messages under the feature message_queue (router_profiles 3.9).

A para's messages are one flat list: each has its page, its index and its stage. The book's `begin`, the messages that wait and the heap
that a page uses are found by scans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from validator.protocols.router.simulation.refusal import Refused
from validator.simulate import Json, size_of

OVERHEAD = 5  # bytes of the heap that a message takes besides its payload
Stage = Literal["waiting", "aside", "processed"]


class NaiveMessageQueue:
    """The books of all paras, and the ring of those with waiting messages, from its head on."""

    def __init__(self) -> None:
        self.messages: dict[
            int, list[Json]
        ] = {}  # in order: {"page", "index", "msg", "stage"}; those of existing pages
        self.ends: dict[int, int] = {}
        self.ring: list[int] = []

    # -- computed on demand ---------------------------------------------------------------------------------------

    def of_stage(self, para: int, *stages: Stage) -> list[Json]:
        """Return the para's messages that are at one of the stages, in order."""
        return [message for message in self.messages.get(para, []) if message["stage"] in stages]

    def waiting(self, para: int) -> list[str]:
        """Return the payloads of the para's messages that wait, in order."""
        return [message["msg"] for message in self.of_stage(para, "waiting")]

    def unprocessed(self, para: int) -> list[str]:
        """Return the payloads of the para's messages that wait or were set aside."""
        return [message["msg"] for message in self.of_stage(para, "waiting", "aside")]

    # -- what changes it ------------------------------------------------------------------------------------------

    def enact(self, para: int, payload: str, heap_size: int) -> None:
        """Append a message to the last page, or to a new one. Drop it if no page could hold it."""
        if size_of(payload) > heap_size - OVERHEAD:
            return
        messages = self.messages.setdefault(para, [])
        end = self.ends.get(para, 0)
        last_page = [message for message in messages if message["page"] == end - 1]
        used = sum(size_of(message["msg"]) + OVERHEAD for message in last_page)
        waits = para in self.ring
        if waits and used + size_of(payload) + OVERHEAD <= heap_size:
            messages.append({"page": end - 1, "index": len(last_page), "msg": payload, "stage": "waiting"})
            return
        messages.append({"page": end, "index": 0, "msg": payload, "stage": "waiting"})
        self.ends[para] = end + 1
        if not waits:
            self.ring.append(para)

    def serve(self, budget: int, weight_of: Callable[[str], int]) -> list[list[Any]]:
        """Serve each para of the ring once, from the head on; return [[para, payload], ...]."""
        if budget == 0 or not self.ring:
            return []
        handed_over: list[list[Any]] = []
        used = 0
        turns = list(self.ring)
        self.ring = [*turns[1:], turns[0]]
        for para in turns:
            for message in self.of_stage(para, "waiting"):
                weight = weight_of(message["msg"])
                if weight > budget:
                    message["stage"] = "aside"
                    continue
                if used + weight > budget:
                    break
                used += weight
                message["stage"] = "processed"
                handed_over.append([para, message["msg"]])
            self._tidy(para)
        return handed_over

    def service(self, request: Json, weight_of: Callable[[str], int]) -> list[Any]:
        """Hand over a message that was set aside; return [para, payload]."""
        para = request["para_id"]
        messages = self.messages.get(para, [])
        page = [message for message in messages if message["page"] == request["page"]]
        if not page:
            raise Refused("NoPage")
        found = [message for message in page if message["index"] == request["index"]]
        if not found:
            raise Refused("NoMessage")
        (message,) = found
        if message["stage"] == "waiting":
            raise Refused("Queued")
        if message["stage"] == "processed":
            raise Refused("AlreadyProcessed")
        if weight_of(message["msg"]) > request["weight_limit"]:
            raise Refused("InsufficientWeight")
        message["stage"] = "processed"
        self._tidy(para)
        return [para, message["msg"]]

    def drop(self, para: int) -> None:
        """Remove everything of an offboarded para (PR-09)."""
        self.messages.pop(para, None)
        self.ends.pop(para, None)
        self.ring = [other for other in self.ring if other != para]

    def sweep(self, para: int) -> None:
        """Pass over all that waits of a para that goes; on the chain its book stays (PR-09)."""
        for message in self.of_stage(para, "waiting"):
            message["stage"] = "aside"
        self.ring = [other for other in self.ring if other != para]

    def _tidy(self, para: int) -> None:
        """Remove pages without unprocessed messages, and the para from the ring if nothing waits."""
        left = {message["page"] for message in self.of_stage(para, "waiting", "aside")}
        self.messages[para] = [message for message in self.messages[para] if message["page"] in left]
        if not self.of_stage(para, "waiting"):
            self.ring = [other for other in self.ring if other != para]

    # -- state keys -----------------------------------------------------------------------------------------------

    def overweight(self) -> dict[str, list[Json]]:
        """Return the messages that were set aside, by para, ascending."""
        aside = {para: self.of_stage(para, "aside") for para in sorted(self.messages)}
        return {
            str(para): [{key: message[key] for key in ("page", "index", "msg")} for message in messages]
            for para, messages in aside.items()
            if messages
        }
