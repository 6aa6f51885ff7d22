# SPDX-License-Identifier: Apache-2.0
"""Test tools for plugin authors; they need no broker, no Spark and no Java."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from validator.plugin.registry import PluginError
    from validator.testing.case import NotApplicable
    from validator.testing.check_points import test_classes
    from validator.testing.contract import Example, HandlerContract
    from validator.testing.harness import Harness, HarnessFault
    from validator.testing.lane_suite import ChainPlayer, result_of
    from validator.testing.protocol import NeedsProtocol, ProtocolContract
    from validator.testing.scenario_writer import ScenarioWriter, suite_text

__all__ = [
    "ChainPlayer",
    "Example",
    "HandlerContract",
    "Harness",
    "HarnessFault",
    "NeedsProtocol",
    "NotApplicable",
    "PluginError",
    "ProtocolContract",
    "ScenarioWriter",
    "result_of",
    "suite_text",
    "test_classes",
]

_MODULES = {
    "ChainPlayer": "validator.testing.lane_suite",
    "Example": "validator.testing.contract",
    "HandlerContract": "validator.testing.contract",
    "Harness": "validator.testing.harness",
    "HarnessFault": "validator.testing.harness",
    "NeedsProtocol": "validator.testing.protocol",
    "NotApplicable": "validator.testing.case",
    "PluginError": "validator.plugin.registry",
    "ProtocolContract": "validator.testing.protocol",
    "ScenarioWriter": "validator.testing.scenario_writer",
    "result_of": "validator.testing.lane_suite",
    "suite_text": "validator.testing.scenario_writer",
    "test_classes": "validator.testing.check_points",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: pytest loads this package at every start, for its fixtures."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
