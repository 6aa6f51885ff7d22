# SPDX-License-Identifier: Apache-2.0
"""Mutants are programs, in the places they name; explanations name lines that exist; and a run continues where one ended."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutants.modules import GROUPS, ROOT, group_of
from tests.mutants.operators import Mutant, mutants
from tests.mutants.run import Result, Results, _hash, explanations, is_explained, sample

SOURCE = '''\
LIMIT = 7


def move(items: list[int], at: int) -> None:
    """Docstrings stay, 7 too."""
    if at < 3 and items:
        return
    items.append(at + 1)
    for item in items:
        if not item:
            continue
    del items[0]
'''

EXPECTED = {
    (6, "compare", "<", "<="),
    (6, "arithmetic", "3", "4"),
    (6, "boolean", "and", "or"),
    (8, "return early", "", "return; "),
    (8, "statement removed", "items.append(at + 1)", "pass"),
    (8, "arithmetic", "+", "-"),
    (8, "arithmetic", "1", "2"),
    (9, "return early", "", "return\n    "),
    (10, "boolean", "not ", ""),
    (11, "loop ended", "continue", "break"),
    (12, "return early", "", "return; "),
    (12, "statement removed", "del items[0]", "pass"),
    (12, "arithmetic", "0", "1"),
}


def test_every_operator_has_its_places() -> None:
    found = mutants("f.py", SOURCE)
    assert {(each.line, each.operator, each.old, each.new) for each in found} == EXPECTED
    assert found == sorted(found)


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


def test_sample_depends_on_its_seed_alone() -> None:
    files = GROUPS[0].files()
    assert sample(1, files) == sample(1, files) != sample(2, files)
    assert sorted(sample(1, files)) == sorted(sample(2, files))


def test_results_of_a_changed_file_are_forgotten(tmp_path: Path) -> None:
    file = GROUPS[0].files()[0]
    mutant = Mutant(file, 1, 0, 1, "compare", "a", "b")
    kept = Results(tmp_path / "results.json")
    kept.add(Result(mutant, "killed", 1.0, _hash((ROOT / file).read_text(encoding="utf-8"))))
    assert Results.read(kept.path).found == kept.found
    kept.add(Result(mutant, "survived", 1.0, "of another version"))
    assert kept.survivors() == [mutant]
    assert not Results.read(kept.path).found


def test_explanations_name_mutants() -> None:
    for each in explanations():
        source = (ROOT / each["file"]).read_text(encoding="utf-8")
        assert any(is_explained(mutant, source, [each]) for mutant in mutants(each["file"], source)), each
        assert each["why"].endswith(".")
