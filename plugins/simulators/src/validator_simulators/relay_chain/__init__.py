# SPDX-License-Identifier: Apache-2.0
"""A mock node of a relay chain: JSON-RPC over WebSocket from recorded blocks, with faults to order. For tests and the demo."""

from validator_simulators.relay_chain.faults import Fault, FaultKind
from validator_simulators.relay_chain.modern import Speech
from validator_simulators.relay_chain.node import MockNode
from validator_simulators.relay_chain.recording import RecordedBlock, Recording, RecordingError

__all__ = ["Fault", "FaultKind", "MockNode", "RecordedBlock", "Recording", "RecordingError", "Speech"]
