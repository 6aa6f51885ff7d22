# SPDX-License-Identifier: Apache-2.0
"""Lifecycles of paras, by the indices of ``Paras.ParaLifecycles``, and what a change of session does to them.

Source: polkadot-sdk, polkadot/runtime/parachains/src/paras/mod.rs (``ParaLifecycle``, ``apply_actions_queue``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ONBOARDING: Final = 0
PARATHREAD: Final = 1
PARACHAIN: Final = 2
UPGRADING: Final = 3
DOWNGRADING: Final = 4
OFFBOARDING: Final = (5, 6)
VALID: Final = (PARATHREAD, PARACHAIN, UPGRADING, DOWNGRADING)
_PARATHREADS: Final = (PARATHREAD, UPGRADING)


def kind_of(lifecycle: int) -> str:
    """Return the kind of a valid para, as records name it."""
    return "parathread" if lifecycle in _PARATHREADS else "parachain"


def is_para(lifecycle: int) -> bool:
    """Return whether a para takes part in traffic: it still does while it waits to be offboarded."""
    return lifecycle in VALID or lifecycle in OFFBOARDING


def changes(before: Mapping[int, int], after: Mapping[int, int]) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the outgoing paras and those that are onboarded, as a session change's record lists them."""
    outgoing = sorted(
        para for para, lifecycle in before.items() if is_para(lifecycle) and not is_para(after.get(para, 0))
    )
    onboarding = [
        {"para_id": para, "kind": kind_of(lifecycle)}
        for para, lifecycle in sorted(after.items())
        if lifecycle in VALID and not is_para(before.get(para, 0))
    ]
    return outgoing, onboarding
