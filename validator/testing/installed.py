# SPDX-License-Identifier: Apache-2.0
"""Contract tests that need a protocol's plugin say in one line that it is not installed, and are skipped then."""

from __future__ import annotations

from typing import Any, ClassVar

from validator.plugin.registry import discover


class NeedsProtocol:
    """Base class of contracts for an installed protocol: one test fails in one line if it is missing, the others are skipped."""

    protocol: ClassVar[str]
    """The protocol's name; its plugin must be installed."""

    def setup_method(self, method: Any) -> None:
        """Skip a test of a protocol that is not installed (a hook of pytest)."""
        if method.__name__ != self.test_protocol_is_installed.__name__ and not self._is_installed():
            import pytest

            pytest.skip(f"protocol {self.protocol!r} is not installed")

    def test_protocol_is_installed(self) -> None:
        """A plugin with the protocol's name is installed."""
        if not self._is_installed():
            import pytest

            pytest.fail(
                f"protocol {self.protocol!r} is not installed: run `pip install --editable .` in the plugin's folder first, "
                "since a protocol is found by the entry point of its distribution, not by PYTHONPATH",
                pytrace=False,
            )

    def _is_installed(self) -> bool:
        return any(found.name == self.protocol for found in discover("validator.protocols"))
