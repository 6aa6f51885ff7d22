# SPDX-License-Identifier: Apache-2.0
"""A compact builder for conformance scenarios: every call adds an input with its expected result.

The suite's scenarios in `tests/router/*_scenarios.py` use it. `make generate` writes them to the JSON files of the
package, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from validator.protocols.router.features.table import FEATURES, PROFILES

Json = dict[str, Any]

BASE_CONFIG: dict[str, int] = {
    "max_upward_message_num_per_candidate": 3,
    "max_upward_message_size": 8,
    "max_upward_queue_count": 4,
    "max_upward_queue_size": 20,
    "preferred_dispatchable_upward_messages_step_weight": 100,
    "max_downward_message_size": 16,
    "hrmp_max_message_num_per_candidate": 3,
    "hrmp_channel_max_places": 4,
    "hrmp_channel_max_message_size": 8,
    "hrmp_channel_max_size": 20,
    "hrmp_max_parachain_outbound_channels": 3,
    "hrmp_max_parathread_outbound_channels": 1,
    "hrmp_max_parachain_inbound_channels": 3,
    "hrmp_max_parathread_inbound_channels": 1,
    "hrmp_sender_deposit": 10,
    "hrmp_recipient_deposit": 6,
    "hrmp_open_request_ttl": 2,
}
"""Tiny limits, all different within a kind, so that scenarios reach each of them and cannot confuse two."""

PARAS = {2000: "parachain", 2001: "parachain", 2002: "parachain", 2003: "parathread", 2004: "parathread"}
WITH_SYSTEM = {1000: "parachain", 1001: "parachain", 2000: "parachain", 2001: "parachain", 2003: "parathread"}
"""Two system paras and some others."""

BALANCE = 100
NOT_IN_FORCE = "RequestNotInForce"


class Trace:
    """One scenario under construction; `at` starts a step, the other methods add to it."""

    def __init__(
        self,
        identifier: str,
        rule: str,
        *,
        source: str,
        config: dict[str, int] | None = None,
        paras: dict[int, str] | None = None,
        balances: dict[int, int] | None = None,
        needs: tuple[str, ...] = (),
        rules: dict[int, str | Sequence[str]] | None = None,
        interpretation: tuple[str, str, str] | None = None,
        weights: dict[str, int] | None = None,
        default_weight: int = 10,
        failing: tuple[str, ...] = (),
    ) -> None:
        group, _, name = identifier.partition("/")
        paras = paras or PARAS
        balances = {**dict.fromkeys(paras, BALANCE), **(balances or {})}
        self.json: Json = {
            "id": identifier,
            "name": name.replace("-", "_"),
            "group": group,
            "source": source,
            "rule": rule,
            "needs": [*needs, *_features(rules or {})],
            **({} if rules is None else {"rules": [_entry(*each) for each in rules.items()]}),
            "config": {**BASE_CONFIG, **(config or {})},
            "genesis_paras": [
                {"para_id": para, "kind": kind, "balance": balances[para]} for para, kind in paras.items()
            ],
        }
        if interpretation is not None:
            number, question, chosen = interpretation
            self.json["interpretation"] = {"id": number, "question": question, "chosen": chosen, "alternatives": []}
        if weights is not None or failing:
            self.json |= {"ump_weights": weights or {}, "ump_failing_messages": list(failing)}
        self.json["ump_default_weight"] = default_weight
        self.json["steps"] = []

    def at(self, block: int) -> Trace:
        """Start a step."""
        self.json["steps"].append({"block": block, "expect": {}})
        return self

    @property
    def _step(self) -> Json:
        step: Json = self.json["steps"][-1]
        return step

    def _add(self, key: str, item: Json, error: str | None, fields: Json) -> Trace:
        self._step.setdefault(key, []).append(item)
        result: Json = {"ok": True} if error is None else {"ok": False, "error": {"kind": error, **fields}}
        self._step["expect"].setdefault(key, []).append(result)
        return self

    # --- inputs ---

    def init(self, origin: int, recipient: int, places: int = 4, size: int = 8, *, error: str | None = None) -> Trace:
        """Add an init_open_channel."""
        request = {"kind": "init_open_channel", "origin": origin, "recipient": recipient}
        return self._add("requests", {**request, "max_places": places, "max_message_size": size}, error, {})

    def accept(self, origin: int, sender: int, *, error: str | None = None) -> Trace:
        """Add an accept_open_channel."""
        return self._add("requests", {"kind": "accept_open_channel", "origin": origin, "sender": sender}, error, {})

    def close(self, origin: int, sender: int, recipient: int, *, error: str | None = None) -> Trace:
        """Add a close_channel."""
        request = {"kind": "close_channel", "origin": origin, "channel": [sender, recipient]}
        return self._add("requests", request, error, {})

    def cleanup(self, para: int, *, error: str | None = None) -> Trace:
        """Add a schedule_para_cleanup."""
        return self._add("requests", {"kind": "schedule_para_cleanup", "para_id": para}, error, {})

    def cancel(self, origin: int, sender: int, recipient: int, *, error: str | None = None) -> Trace:
        """Add a cancel_open_request."""
        return self._later("cancel_open_request", error, origin=origin, channel=[sender, recipient])

    def force(self, sender: int, recipient: int, places: int = 4, size: int = 8, *, error: str | None = None) -> Trace:
        """Add a force_open_channel."""
        arguments = {"sender": sender, "recipient": recipient, "max_places": places, "max_message_size": size}
        return self._later("force_open_channel", error, **arguments)

    def establish(self, sender: int, recipient: int, *, error: str | None = None) -> Trace:
        """Add an establish_system_channel."""
        return self._later("establish_system_channel", error, sender=sender, recipient=recipient)

    def establish_with(self, origin: int, target: int, *, error: str | None = None) -> Trace:
        """Add an establish_channel_with_system."""
        return self._later("establish_channel_with_system", error, origin=origin, target=target)

    def poke(self, sender: int, recipient: int, *, error: str | None = None) -> Trace:
        """Add a poke_channel_deposits."""
        return self._later("poke_channel_deposits", error, sender=sender, recipient=recipient)

    def service(self, para: int, page: int, index: int, limit: int, *, error: str | None = None) -> Trace:
        """Add a service_overweight."""
        return self._later("service_overweight", error, para_id=para, page=page, index=index, weight_limit=limit)

    def forced(self, kind: str, *, error: str | None = None, **arguments: int) -> Trace:
        """Add a force_process_open, force_process_close or force_clean."""
        return self._later(kind, error, **arguments)

    def _later(self, kind: str, error: str | None, **arguments: Any) -> Trace:
        """Add a request of a kind that only features bring."""
        return self._add(
            "requests", {"kind": kind, **arguments}, error, {"request": kind} if error == NOT_IN_FORCE else {}
        )

    def downward(self, para: int, msg: str, *, error: str | None = None) -> Trace:
        """Add a downward message."""
        return self._add("downward", {"para_id": para, "msg": msg}, error, {})

    def candidate(
        self,
        para: int,
        watermark: int | None = None,
        *,
        send: list[tuple[int, str]] | dict[int, str] | None = None,
        up: tuple[str, ...] = (),
        processed: int = 0,
        relay_parent: int | None = None,
        enact_at: int | None = None,
        error: str | None = None,
        **fields: Any,
    ) -> Trace:
        """Add a candidate; its watermark is the block before this one unless given."""
        messages = send.items() if isinstance(send, dict) else send or []
        item: Json = {
            "para_id": para,
            "hrmp_watermark": self._step["block"] - 1 if watermark is None else watermark,
            "upward_messages": list(up),
            "processed_downward_messages": processed,
            "horizontal_messages": [{"recipient": recipient, "data": data} for recipient, data in messages],
        }
        if relay_parent is not None:
            item["relay_parent_number"] = relay_parent
        if enact_at is not None:
            item["enact_at_block"] = enact_at
        return self._add("candidates", item, error, fields)

    def session(self, *outgoing: int, onboarding: list[tuple[int, str, int]] | None = None, **new_config: int) -> Trace:
        """End the session with this block."""
        change: Json = {"outgoing": list(outgoing)} if outgoing else {}
        if onboarding:
            change["onboarding"] = [{"para_id": para, "kind": kind, "balance": free} for para, kind, free in onboarding]
        if new_config:
            change["new_config"] = new_config
        self._step["session_change"] = change
        return self

    # --- expectations ---

    def dispatched(self, *messages: tuple[int, str]) -> Trace:
        """Expect these messages from the dispatch round of this block."""
        self._step["expect"]["dispatched"] = [list(message) for message in messages]
        return self

    def state(self, **expected: Any) -> Trace:
        """Expect this part of the state after this step; keys may be para ids or channel tuples."""
        self._step["expect"].setdefault("state", {}).update({key: _plain(value) for key, value in expected.items()})
        return self

    # --- common sequences ---

    def open(self, *channels: tuple[int, int], block: int = 1, places: int = 4, size: int = 8) -> Trace:
        """Request and accept channels in one block and end the session with the next."""
        self.at(block)
        for sender, recipient in channels:
            self.init(sender, recipient, places, size).accept(recipient, sender)
        names = [f"{sender}->{recipient}" for sender, recipient in sorted(channels)]
        return self.at(block + 1).session().state(open_request_set=[], channel_set=names)


def _entry(from_block: int, held: str | Sequence[str]) -> Json:
    return {"from_block": from_block, **({"profile": held} if isinstance(held, str) else {"features": list(held)})}


def _features(rules: dict[int, str | Sequence[str]]) -> list[str]:
    """Return every feature that occurs in a list of rules by height."""
    held = {name for each in rules.values() for name in (PROFILES[each] if isinstance(each, str) else each)}
    return [feature.name for feature in FEATURES if feature.name in held]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            f"{key[0]}->{key[1]}" if isinstance(key, tuple) else str(key): _plain(item) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
