# SPDX-License-Identifier: Apache-2.0
"""The tests that every plugin of upward-message handlers inherits.

>>> from pathlib import Path
>>> import validator_remark
>>> from validator.testing import Example, HandlerContract
>>> class TestRemark(HandlerContract):
...     plugin = validator_remark
...     config = {"bytes_max": 64}
...     examples = (b"\\x00\\x01hello", Example(b"\\x00\\x01again", para=2001, setup=lambda chain: chain.send(b"\\x00\\x01hello")))
...     readme = Path(__file__).parents[1] / "README.md"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from validator.config import DEFAULT_PROTOCOL
from validator.core.types import Balance, Para, ParaId
from validator.testing import points
from validator.testing.case import Case, Example, NotApplicable
from validator.testing.harness import BALANCE, PARAS, HostConfiguration

__all__ = ["Example", "HandlerContract"]


class HandlerContract:
    """Base class for a plugin's contract tests: inherit from it at the top level of a file, in a class named ``Test...``.

    Every example runs on its own chain. Override a test that does not fit the plugin like any method.
    """

    plugin: ClassVar[Any]
    """A module or object with hooks, or the name of an installed plugin."""
    config: ClassVar[Mapping[str, Any]] = {}
    """The configuration under which the examples succeed."""
    examples: ClassVar[Sequence[bytes | Example]] = ()
    """Messages that succeed, of every kind that the plugin accepts; a bare payload is sent by the first para."""
    readme: ClassVar[Path | None] = None
    """A page whose Python examples are run."""
    paras: ClassVar[Sequence[ParaId | Para]] = PARAS
    host_configuration: ClassVar[HostConfiguration] = None
    balances: ClassVar[Mapping[ParaId, Balance] | Balance] = BALANCE
    protocol: ClassVar[str] = DEFAULT_PROTOCOL
    """The rule set of the chain that the examples run on."""

    def case(self) -> Case:
        """Return the subject of the contract's points."""
        own = type(self)
        first = next(iter(own.paras))
        para = first.para_id if isinstance(first, Para) else first
        nested = "." in own.__qualname__
        return Case(
            plugin=own.plugin,
            config=own.config,
            examples=tuple(each if isinstance(each, Example) else Example(each, para) for each in own.examples),
            paras=tuple(own.paras),
            host_configuration=own.host_configuration,
            balances=own.balances,
            protocol=own.protocol,
            readme=own.readme,
            source=None if nested else (str(Path(inspect.getfile(own)).resolve()), own.__qualname__),
        )

    def test_every_example_succeeds(self) -> None:
        """Every example is dispatched with outcome ok."""
        assert self.examples, "give examples: messages that succeed, of every kind that the plugin accepts"
        self._check(points.accepts_its_examples)

    def test_every_kind_has_an_example(self) -> None:
        """Every kind of message has an example."""
        self._check(points.shows_every_kind)

    def test_two_runs_are_equal(self) -> None:
        """Dispatch records, state and state root are the same in a second run."""
        self._check(points.is_the_same_twice)

    def test_hash_seeds_do_not_matter(self) -> None:
        """Processes under other hash seeds give the same outputs."""
        self._check(points.is_the_same_under_every_hash_seed)

    def test_restarts_do_not_matter(self) -> None:
        """A message has the same output whether or not the job restarts before it."""
        self._check(points.survives_a_restart)

    def test_a_failed_message_leaves_nothing(self) -> None:
        """A fault at any context call rolls everything back."""
        self._check(points.leaves_nothing_of_a_failed_message)

    def test_weight_bounds_a_message(self) -> None:
        """With less weight than it uses, a message leaves nothing."""
        self._check(points.is_bounded_by_weight)

    def test_oversize_payloads_are_refused(self) -> None:
        """A payload that is too long fails without a context call."""
        self._check(points.refuses_oversize_payloads)

    def test_it_works_from_an_archive(self) -> None:
        """The plugin runs from its wheel's content as a .zip on the path."""
        self._check(points.works_from_an_archive)

    def test_its_configuration_survives_json(self) -> None:
        """The configuration survives a round trip through JSON."""
        self._check(points.has_a_configuration_that_survives_json)

    def test_its_readme_runs(self) -> None:
        """The README's Python examples run."""
        self._check(points.has_a_readme_that_runs)

    def test_its_source_is_clean(self) -> None:
        """The lint of the deterministic zone finds nothing."""
        self._check(points.is_clean)

    def _check(self, point: Callable[[Case], None]) -> None:
        try:
            point(self.case())
        except NotApplicable as reason:
            import pytest

            pytest.skip(str(reason))
