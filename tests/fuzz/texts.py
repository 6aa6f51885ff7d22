# SPDX-License-Identifier: Apache-2.0
"""Targets that read text: JSON lines, traces, state files, proofs and the configuration."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validator_simulators import SimulationSettings
from validator_xcmp import proof_documents

from tests.fuzz.records import PROTOCOLS, codec
from tests.fuzz.target import TEXT_WORDS, Target, refused
from tests.unit.lanes.chains import chain
from validator.cli.common import parse
from validator.codec.json_form import encode_input, to_json
from validator.config import load_config
from validator.core.inputs import RecordKind
from validator.document import Node, parse_document
from validator.errors import UserError
from validator.plugin.runtime import installed_protocol
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.statefile import read_state
from validator.protocols.router.traces import view
from validator.replay.scenario import read_scenarios, suite_files
from validator.topics import INPUT_TOPICS, TOPIC_OF_KIND

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SETTINGS = SimulationSettings(seed=3, blocks=10, candidates_per_block=4, session_length_blocks=5)
SEED_BYTES_MAX = 20_000
"""Larger seeds make slow inputs that say no more."""


def _lines() -> list[bytes]:
    bodies = (record for block in chain(SETTINGS).blocks for record in block.records)
    return [json.dumps({"topic": topic, **body}).encode() for topic, body in bodies][:60]


def _check_line(data: bytes) -> bool:
    try:
        record = parse(data, "line 1")
        topic = record.pop("topic", None) if isinstance(record, dict) else None
        kind = INPUT_TOPICS.get(topic, RecordKind.CANDIDATE) if isinstance(topic, str) else RecordKind.BLOCK
    except UserError as error:
        return refused(str(error))
    try:
        value = encode_input(codec(), kind, record, "router")
    except UserError as error:
        return refused(str(error))
    again = to_json(TOPIC_OF_KIND[kind], value, codec())
    assert encode_input(codec(), kind, again, "router") == value
    return True


@cache
def _protocol(name: str) -> Any:
    return installed_protocol(name)


def _traces() -> list[bytes]:
    found = []
    for protocol in PROTOCOLS:
        for path in suite_files(protocol):
            document = json.loads(path.read_bytes())
            for scenario in document if isinstance(document, list) else []:
                data = json.dumps([scenario]).encode()
                if len(data) <= SEED_BYTES_MAX:
                    found.append(data)
                    break
    return found


def _check_trace(data: bytes) -> bool:
    try:
        read_scenarios(parse_document(data, "trace"), installed=_protocol)
    except UserError:
        return False
    return True


CONFIGURATION = HostConfiguration(**dict.fromkeys(HostConfiguration.__dataclass_fields__, 100))


def _states() -> list[bytes]:
    found = [b"{}"]
    for path in suite_files("router"):
        document = json.loads(path.read_bytes())
        for scenario in document if isinstance(document, list) else []:
            state = scenario.get("final_state")
            data = json.dumps(state).encode()
            if state and len(data) <= SEED_BYTES_MAX and _check_state(data):
                found.append(data)
    return found[:40]


def _check_state(data: bytes) -> bool:
    try:
        state = read_state(parse_document(data, "state"), CONFIGURATION)
    except UserError:
        return False
    document = json.loads(json.dumps(view(state)))
    assert json.loads(json.dumps(view(read_state(Node(document, "again"), CONFIGURATION)))) == document
    return True


READERS: dict[bytes, tuple[Callable[[object], Any], Callable[..., Any]]] = {
    b"p": (proof_documents.read_processing_proof, proof_documents.show_processing_proof),
    b"r": (proof_documents.read_row_proof, proof_documents.show_row_proof),
    b"h": (proof_documents.read_head_proof, proof_documents.show_head_proof),
}
"""Readers of proofs take any JSON: what does not belong there fails in the verification."""


def _check_proof(data: bytes) -> bool:
    try:
        value = parse_document(data[1:], "proof").value
    except UserError:
        return False
    for read, _ in READERS.values():
        read(value)
    proof_documents.read_payload_proof(value)
    return data[:1] in READERS


def _proofs() -> list[bytes]:
    path = {"index": 0, "width": 2, "hashes": ["00" * 32]}
    part = {
        "root": "00" * 32,
        "links": [{"root": "11" * 32, "path": path}],
        "path": path,
        "row": path,
        "block": 7,
        "bodies": {"7": [["00"]]},
    }
    shapes: list[Any] = [
        part,
        {"2000": part, "2001": None},
        {"head": "00", "path": path},
        {"payload": "00", "path": path},
        path,
    ]
    return [kind + json.dumps(shape).encode() for kind in READERS for shape in shapes]


def _configurations() -> list[bytes]:
    found = [path.read_bytes() for path in sorted(EXAMPLES.rglob("*.toml")) if path.name != "pyproject.toml"]
    return [data for data in found if _check_configuration(data)]


def _check_configuration(data: bytes) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "validator.toml"
        path.write_bytes(data)
        try:
            load_config(path)
        except UserError:
            return False
    return True


WORDS_TOML = (
    *TEXT_WORDS,
    b"[",
    b"[[chains.a.handlers]]\n",
    b"[chains.a]\n",
    b"[kafka]\n",
    b"= ",
    b"'''",
    b"1979-05-27T07:32:00Z",
    b"nan",
    b"inf",
)
TARGETS = (
    Target("json-lines", _lines, _check_line, TEXT_WORDS),
    Target("traces", _traces, _check_trace, TEXT_WORDS, per_test=4_000),
    Target("state-files", _states, _check_state, TEXT_WORDS, per_test=10_000),
    Target("proofs", _proofs, _check_proof, TEXT_WORDS),
    Target("configuration", _configurations, _check_configuration, WORDS_TOML, per_test=1_000),
)
