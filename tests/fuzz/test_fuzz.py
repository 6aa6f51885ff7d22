# SPDX-License-Identifier: Apache-2.0
"""Every decoder takes some thousand mutated inputs; `make fuzz` gives each of them many more."""

from __future__ import annotations

import pytest

from tests.fuzz.engine import Finding, run
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

SEED = 16


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_keeps_its_promises(name: str) -> None:
    target = TARGETS[name]
    outcome = run(target, target.per_test, SEED)
    # inputs that are all refused, or all accepted, would show little; some targets accept anything
    assert outcome.accepted > 0 or name in ("genesis", "store")


def _never(_data: bytes) -> bool:
    raise KeyError("x")


def _forgets(data: bytes) -> bool:
    assert data.lstrip(b"\0") == data, "written again, the zeros are gone"
    return True


@pytest.mark.parametrize(
    ("check", "why"), [(_never, "KeyError"), (_forgets, "the zeros are gone"), (lambda _: False, "a seed is refused")]
)
def test_a_broken_promise_is_found(check: object, why: str) -> None:
    with pytest.raises(Finding, match=why):
        run(Target("broken", lambda: [b"a"], check), 500, SEED)  # type: ignore[arg-type]
