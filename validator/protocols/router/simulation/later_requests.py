# SPDX-License-Identifier: Apache-2.0
"""Requests of the later kinds, for chains whose rules change with height.

Plausible requests are drawn and tried on the model, which then forgets them. The one with the result met least so far is made.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any, Final

from validator.protocols.router.simulation.entry_points import saved
from validator.protocols.router.simulation.later_rules import REQUESTS, is_system
from validator.protocols.router.simulation.model import Channel, NaiveRouter
from validator.simulate import Draws, Json

DRAWN: Final = 10
"""Number of requests from which one is chosen."""
OK: Final = "ok"
ERRORS_BY_STAGE: Final = {"waiting": "Queued", "processed": "AlreadyProcessed", "aside": "InsufficientWeight"}
"""What a request to service a message gets that does not give its weight."""


def request_record(request: Json) -> Json:
    """Return a request as a record: there ``index`` is the record's own, so that of an upward message is ``message_index``."""
    if request["kind"] != "service_overweight":
        return request
    return {("message_index" if name == "index" else name): value for name, value in request.items()}


class LaterRequests:
    """Makes requests of the later kinds, and requests to offboard a para that message_queue refuses."""

    def __init__(self, router: NaiveRouter, rng: Draws) -> None:
        self.router = router
        self.rng = rng
        self.met: Counter[tuple[str, str]] = Counter()  # by kind of request and of error

    def request(self, *, breaks: bool) -> Json | None:
        """Return a request that breaks a rule or none, or None if no drawn one is such.

        Without a rule to break, the kind is drawn first, so that kinds which nearly always succeed leave room for others.
        """
        kinds = [*REQUESTS, "schedule_para_cleanup"] if breaks else [self.rng.choice(list(REQUESTS))]
        if breaks and self.router.has("message_queue"):
            kinds += ["service_overweight"] * 3  # its errors need messages at different stages
        if not breaks and not any(self.router.has(feature) for feature in REQUESTS[kinds[0]]):
            return None
        found: dict[tuple[str, str], Json] = {}
        for _ in range(DRAWN):
            kind = self.rng.choice(kinds)
            make: Any = getattr(self, f"_{kind}")
            request = {"kind": kind, **make()}
            result = self._tried(request)
            if (result != OK) == breaks:
                found.setdefault((kind, result), request)
                if not breaks:
                    break
        if not found:
            return None
        least = min(found, key=lambda result: (self.met[result], *result))
        self.met[least] += 1
        return found[least]

    def rare(self) -> Json | None:
        """Return a request to service an upward message that gets an error not met yet, if the queue has a message for it now."""
        queue, kind = self.router.queue, "service_overweight"
        if queue is None:
            return None
        for para in sorted(queue.messages):
            for message in queue.messages[para]:
                result = ERRORS_BY_STAGE[message["stage"]]
                weight = self.router.upward_weight(message["msg"])
                if weight > 0 and not self.met[(kind, result)]:
                    self.met[(kind, result)] += 1
                    place = {"page": message["page"], "index": message["index"]}
                    return {"kind": kind, "para_id": para, **place, "weight_limit": weight - 1}
        return None

    def _tried(self, request: Json) -> str:
        """Return what the model says to a request, "ok" or a kind of error, and leave the model as it was."""
        router = self.router
        before = {
            **saved(router),
            "outgoing": list(router.outgoing),
            "serviced": list(router.serviced),
            "queue": deepcopy(router.queue) if request["kind"] == "service_overweight" else router.queue,
        }
        result = router.request(request)
        vars(router).update(before)
        return OK if result["ok"] else str(result["error"]["kind"])

    # -- plausible requests ---------------------------------------------------------------------------------------

    def _para(self) -> int:
        return self.rng.choice(sorted(self.router.kinds))

    def _system(self) -> int:
        """Return a system para, at times any para."""
        systems = [para for para in sorted(self.router.kinds) if is_system(para)]
        return self.rng.choice(systems) if systems and self.rng.random() < 0.9 else self._para()

    def _one_of(self, pairs: list[Channel]) -> Channel:
        """Return one of the pairs, at times any pair."""
        if pairs and self.rng.random() < 0.85:
            return self.rng.choice(pairs)
        return self._para(), self._para()

    def _cancel_open_request(self) -> Json:
        channel = self._one_of(sorted(self.router.requests))
        origin = self.rng.choice(channel) if self.rng.random() < 0.8 else self._para()
        return {"origin": origin, "channel": list(channel)}

    def _force_open_channel(self) -> Json:
        sender, recipient = self._one_of(sorted(self.router.requests) if self.rng.random() < 0.5 else [])
        places = self.rng.randint(1, self.router.config["hrmp_channel_max_places"])
        size = self.rng.randint(100, self.router.config["hrmp_channel_max_message_size"])
        if self.rng.random() < 0.1:
            places, size = self.rng.choice(((0, size), (places + 1000, size), (places, 0), (places, size + 1_000_000)))
        return {"sender": sender, "recipient": recipient, "max_places": places, "max_message_size": size}

    def _establish_system_channel(self) -> Json:
        return {"sender": self._system(), "recipient": self._system()}

    def _establish_channel_with_system(self) -> Json:
        """Connect a para to a system para, most often to one without channels or requests between the two."""
        taken = {frozenset(pair) for pair in (*self.router.channels, *self.router.requests)}
        origin = self._para()
        apart = [
            para
            for para in sorted(self.router.kinds)
            if is_system(para) and para != origin and frozenset((origin, para)) not in taken
        ]
        return {
            "origin": origin,
            "target": self.rng.choice(apart) if apart and self.rng.random() < 0.7 else self._system(),
        }

    def _poke_channel_deposits(self) -> Json:
        """Poke a channel, most often one whose deposits are not what they would be now."""
        router = self.router
        now = router.config["hrmp_sender_deposit"], router.config["hrmp_recipient_deposit"]
        stale = [
            pair
            for pair, channel in sorted(router.channels.items())
            if (channel["sender_deposit"], channel["recipient_deposit"])
            != ((0, 0) if any(map(is_system, pair)) else now)
        ]
        others = sorted(router.channels) + sorted(router.requests)
        sender, recipient = self._one_of(stale if stale and self.rng.random() < 0.7 else others)
        return {"sender": sender, "recipient": recipient}

    def _service_overweight(self) -> Json:
        """Service a message of the queue, most often one that was set aside; at times name none that is there, or too little weight."""
        queue = self.router.queue
        found = [] if queue is None else [(p, message) for p in sorted(queue.messages) for message in queue.messages[p]]
        if not found:
            return {"para_id": self._para(), "page": 0, "index": 0, "weight_limit": 0}
        stages = sorted({message["stage"] for _, message in found})
        stage = "aside" if "aside" in stages and self.rng.random() < 0.4 else self.rng.choice(stages)
        para, message = self.rng.choice([each for each in found if each[1]["stage"] == stage])
        page, index = message["page"], message["index"]
        weight_limit = self.router.upward_weight(message["msg"])
        chance = self.rng.random()
        if chance < 0.1:
            page += self.rng.randint(1, 3)
        elif chance < 0.2:
            index += self.rng.randint(1, 3)
        elif chance < 0.5:
            weight_limit = self.rng.randrange(weight_limit + 1)
        return {"para_id": para, "page": page, "index": index, "weight_limit": weight_limit}

    def _force_process_open(self) -> Json:
        return {}

    def _force_process_close(self) -> Json:
        return {}

    def _force_clean(self) -> Json:
        """Clean a para up, most often one with few channels: a chain without its hubs has nothing to say."""
        degree = Counter(para for pair in self.router.channels for para in pair)
        paras = [self._para() for _ in range(4)]
        return {"para_id": min(paras, key=lambda para: (degree[para], para))}

    def _schedule_para_cleanup(self) -> Json:
        """Offboard a para, one with upward messages if there is any."""
        paras = sorted(self.router.kinds)
        busy = [para for para in paras if self.router.upward_waiting(para)]
        return {"para_id": self.rng.choice(busy or paras)}
