# SPDX-License-Identifier: Apache-2.0
"""Mutants are other programs, each group has its tests, and explanations name lines that exist."""

from __future__ import annotations

import ast

from tests.mutants.modules import GROUPS, ROOT, group_of
from tests.mutants.operators import mutants
from tests.mutants.run import explanations, is_explained

EVERY = 23
"""One of this many mutants is parsed: all of them would take a minute."""


def test_mutants_of_the_modules_are_other_programs() -> None:
    for group in GROUPS:
        assert group.files(), group.name
        for file in group.files():
            source = (ROOT / file).read_text(encoding="utf-8")
            before = ast.dump(ast.parse(source))
            for mutant in mutants(file, source)[::EVERY]:
                assert ast.dump(ast.parse(mutant.apply(source))) != before, mutant


def test_tests_of_every_group_exist() -> None:
    for group in GROUPS:
        for test in group.tests:
            assert (ROOT / test.removeprefix("--ignore=").partition("::")[0]).exists(), test
        assert all(group_of(file) is group for file in group.files())


def test_explanations_name_mutants() -> None:
    for each in explanations():
        source = (ROOT / each["file"]).read_text(encoding="utf-8")
        assert any(is_explained(mutant, source, [each]) for mutant in mutants(each["file"], source)), each
        assert each["why"].endswith(".")
