# SPDX-License-Identifier: Apache-2.0
"""Every decoder takes some thousand mutated inputs; `make fuzz` gives each of them many more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz.engine import CORPUS, Finding, run
from tests.fuzz.mutator import Mutator
from tests.fuzz.target import BINARY_WORDS, Target
from tests.fuzz.targets import TARGETS

SEED = 16
CORPUS_BYTES_MAX = 256 * 1024
"""Bytes of all kept inputs."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_keeps_its_promises(name: str) -> None:
    target = TARGETS[name]
    outcome = run(target, target.per_test, SEED)
    # inputs that are all refused, or all accepted, would show little; some targets accept anything
    assert outcome.accepted > 0 or name in ("genesis", "store")


def test_the_same_seed_makes_the_same_inputs() -> None:
    first, second, other = (Mutator([b"abc", b"defgh"], BINARY_WORDS, seed) for seed in (1, 1, 2))
    inputs = [first.next() for _ in range(50)]
    assert inputs == [second.next() for _ in range(50)]
    assert inputs != [other.next() for _ in range(50)]


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


def test_the_corpus_is_small_and_of_known_targets() -> None:
    files = list(CORPUS.glob("*.hex"))
    assert {path.stem for path in files} <= set(TARGETS)
    assert sum(path.stat().st_size for path in files) <= CORPUS_BYTES_MAX
    for path in files:
        assert re.fullmatch(r"(?:[0-9a-f]+\n)+", Path(path).read_text("ascii"))
