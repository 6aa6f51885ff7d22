# SPDX-License-Identifier: Apache-2.0
"""Names that others use for what has a different name here, and what somebody may have meant by a name that is not known.

The names here come from the specifications. Relay chains have renamed some since, and libraries and explorers write them in their own
way. `NAMES` is the one table of them: errors of records and of the configuration read it, and docs/names.md is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import takewhile
from typing import Final, NamedTuple


class Renamed(NamedTuple):
    """A name here, and what others call it; ``note`` says where the meaning differs as well."""

    ours: str
    theirs: tuple[str, ...]
    where: str
    note: str = ""


LIMITS: Final = "limits: `host_configuration`, `new_config`"
REQUESTS: Final = "channel requests: fields"
KINDS: Final = "channel requests: `kind`"
STATE: Final = "state files: `channels`, `open_requests`"
ITEMS: Final = "state files"
RECORDS: Final = "all records"
CANDIDATES: Final = "candidates, downward messages"

NAMES: Final = (
    Renamed("hrmp_channel_max_places", ("hrmp_channel_max_capacity",), LIMITS),
    Renamed("hrmp_channel_max_size", ("hrmp_channel_max_total_size",), LIMITS),
    Renamed(
        "preferred_dispatchable_upward_messages_step_weight",
        ("ump_service_total_weight",),
        LIMITS,
        "weight for upward messages of one block; chains with `MessageQueue` have a constant of the runtime instead",
    ),
    Renamed("init_open_channel", ("hrmp_init_open_channel",), KINDS),
    Renamed("accept_open_channel", ("hrmp_accept_open_channel",), KINDS),
    Renamed("close_channel", ("hrmp_close_channel",), KINDS),
    Renamed("cancel_open_request", ("hrmp_cancel_open_request",), KINDS),
    Renamed("force_open_channel", ("force_open_hrmp_channel",), KINDS),
    Renamed("force_process_open", ("force_process_hrmp_open",), KINDS),
    Renamed("force_process_close", ("force_process_hrmp_close",), KINDS),
    Renamed("force_clean", ("force_clean_hrmp",), KINDS),
    Renamed("service_overweight", ("execute_overweight",), KINDS, "a call of `MessageQueue`, of `Ump` before"),
    Renamed("kind", ("call", "method", "call_module_function"), REQUESTS, "the call without its pallet"),
    Renamed("max_places", ("proposed_max_capacity", "max_capacity"), REQUESTS),
    Renamed("max_message_size", ("proposed_max_message_size",), REQUESTS),
    Renamed("channel", ("channel_id",), REQUESTS, "`[sender, recipient]`"),
    Renamed("target", ("target_system_chain",), REQUESTS, "of `establish_channel_with_system`"),
    Renamed("limit_used_places", ("max_capacity",), STATE),
    Renamed("limit_used_bytes", ("max_total_size",), STATE),
    Renamed("limit_message_size", ("max_message_size",), STATE),
    Renamed("used_places", ("msg_count",), STATE),
    Renamed("used_bytes", ("total_size",), STATE),
    Renamed("channels", ("hrmp_channels",), ITEMS),
    Renamed("open_requests", ("hrmp_open_channel_requests",), ITEMS),
    Renamed("open_request_set", ("hrmp_open_channel_requests_list",), ITEMS),
    Renamed("close_request_set", ("hrmp_close_channel_requests_list",), ITEMS),
    Renamed("ingress", ("hrmp_ingress_channels_index",), ITEMS),
    Renamed("egress", ("hrmp_egress_channels_index",), ITEMS),
    Renamed("contents", ("hrmp_channel_contents",), ITEMS),
    Renamed("digests", ("hrmp_channel_digests",), ITEMS),
    Renamed("watermarks", ("hrmp_watermarks",), ITEMS),
    Renamed("dmq", ("downward_message_queues",), ITEMS),
    Renamed("dmq_heads", ("downward_message_queue_heads",), ITEMS),
    Renamed("ump_queues", ("relay_dispatch_queues",), ITEMS, "of `Ump`; `MessageQueue` has `Pages` and `BookStateFor`"),
    Renamed("ump_queue_size", ("relay_dispatch_queue_size",), ITEMS, "the same"),
    Renamed(
        "lane", ("chain", "relay_chain", "network"), RECORDS, "one relay chain, by the name of its table in `[chains]`"
    ),
    Renamed("block", ("block_num", "block_number", "number"), RECORDS, "the relay chain's block, never a para's"),
    Renamed("index", ("extrinsic_index", "event_index"), RECORDS, "the place among the block's records of this kind"),
    Renamed("para_id", ("para", "parachain_id"), CANDIDATES),
    Renamed("relay_parent_number", ("relay_parent",), CANDIDATES, "its number, not its hash"),
    Renamed("recipient", ("dest", "dest_para_id", "receiver"), CANDIDATES),
    Renamed("sender", ("origin_para_id",), REQUESTS),
    Renamed("msg", ("message", "data"), CANDIDATES, "of a downward message; a horizontal one has `data`"),
)
"""The table. A name in two rows means the one that is known where it stands."""


def snake_case(name: str) -> str:
    """Return a name as polkadot-js writes it, such as ``maxUpwardQueueSize``, with the words of its chain's source."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that somebody may have meant, None if no one is close.

    The name that others have for it goes first. A name that has the same words in their order, some of them abbreviated, goes before one
    that merely looks alike: ``hrmp_max_msg`` is ``hrmp_max_message_num_per_candidate`` rather than ``hrmp_channel_max_size``.
    """
    known = list(known)
    words = snake_case(name)
    if words in known:
        return words
    for each in NAMES:
        if words in each.theirs and each.ours in known:
            return each.ours
    same_words = [key for key in known if _has_words(key, words.split("_"))]
    if same_words:
        return max(same_words, key=lambda key: (_same_start(key, words), -len(key)))
    return next(iter(get_close_matches(name, known, 1)), None)


def _same_start(one: str, other: str) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _has_words(key: str, words: list[str]) -> bool:
    left = iter(key.split("_"))
    return all(any(_is_short_for(word, full) for full in left) for word in words)


def _is_short_for(word: str, full: str) -> bool:
    """Return whether a word begins as another one does, and has letters of it in their order."""
    letters = iter(full)
    return word[:1] == full[:1] and all(letter in letters for letter in word)
