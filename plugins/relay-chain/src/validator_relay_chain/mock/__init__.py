# SPDX-License-Identifier: Apache-2.0
"""A mock node of a relay chain: JSON-RPC over WebSocket from recorded blocks, with faults to order. For tests and the demo."""

from validator_relay_chain.mock.faults import Fault, FaultKind
from validator_relay_chain.mock.modern import Speech
from validator_relay_chain.mock.node import MockNode
from validator_relay_chain.mock.recording import RecordedBlock, Recording, RecordingError

__all__ = ["Fault", "FaultKind", "MockNode", "RecordedBlock", "Recording", "RecordingError", "Speech"]
