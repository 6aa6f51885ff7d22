# SPDX-License-Identifier: Apache-2.0
"""The contract tests of a plugin's source folder, imported without pytest."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")


def test_classes(source: Path, base: type[T]) -> Iterator[type[T] | str]:
    """Yield the classes of ``tests/test_*.py`` that inherit from a contract, and descriptions of files that cannot be imported."""
    tests = source / "tests"
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    for file in sorted(tests.glob("test_*.py")):
        if base.__name__ not in file.read_text(encoding="utf-8", errors="replace"):
            continue
        try:
            module = _import(file)
        except Exception as error:  # noqa: BLE001  # tests may need packages that are not installed
            yield f"tests/{file.name} cannot be imported ({type(error).__name__}: {error})"
            continue
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, base) and each.__module__ == module.__name__:
                yield each


def _import(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"validator_check_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
