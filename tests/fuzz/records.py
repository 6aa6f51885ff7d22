# SPDX-License-Identifier: Apache-2.0
"""Targets that decode Avro: the inputs of every protocol, outputs, markers and the records of bodies."""

from __future__ import annotations

from functools import cache, partial
from importlib.resources import files
from random import Random
from typing import TYPE_CHECKING

from tests.avro_data import datum_of, written
from tests.codecs import codec_for
from tests.fuzz.target import Target
from validator.ask.dry_run import Answerer
from validator.client import in_memory
from validator.client.backend import MemoryBackend
from validator.codec.codec import ORDER_SCHEMA, RecordFormat, RecordUnreadable
from validator.codec.decode import decode_record
from validator.codec.dry_runs import DryRunRequest, decode_answer, encode_request
from validator.codec.inflight import pack, unpack
from validator.codec.json_form import encode_input, to_json
from validator.codec.orders import decode_order, encode_order
from validator.codec.schemas import HEADER_SIZE, Schema, SchemaSet
from validator.codec.strict import StrictReader, strict_reader
from validator.core.inputs import DeadLetter, RecordKind, Source
from validator.errors import UserError
from validator.topics import INPUT_TOPICS, TOPIC_OF_KIND

if TYPE_CHECKING:
    from validator.codec.codec import Codec

PROTOCOLS = ("router", "xcmp", "xcmp-network", "early-hrmp")
SEEDS = 12
"""Values of each schema."""


@cache
def codec() -> Codec:
    """Return the codec of all protocols."""
    return codec_for(*PROTOCOLS)


@cache
def _reader(schema: Schema) -> StrictReader:
    return strict_reader(schema.parsed, name_records=True)


def _is_canonical(data: bytes, schema: Schema) -> None:
    assert schema.header + written(schema.parsed, _reader(schema)(data, HEADER_SIZE)) == data


def _values(schema: Schema) -> list[bytes]:
    rng = Random(schema.canonical)
    return [schema.header + written(schema.parsed, datum_of(schema.parsed, rng)) for _ in range(SEEDS)]


def _input_seeds(kind: RecordKind) -> list[bytes]:
    from validator_simulators import SimulationSettings

    from tests.unit.lanes.chains import chain

    settings = SimulationSettings(seed=3, blocks=16, candidates_per_block=4, session_length_blocks=5)
    seeds: list[bytes] = []
    for protocol in PROTOCOLS:
        records = chain(settings, protocol).records
        seeds += [each.value for each in records if INPUT_TOPICS[each.topic] == kind][:SEEDS]
    return seeds


def _check_input(kind: RecordKind, data: bytes) -> bool:
    result = decode_record(codec(), kind, data, Source(TOPIC_OF_KIND[kind], 0, 0), b"key")
    item = result if isinstance(result, DeadLetter) else result[1]
    assert unpack(pack([item])) == [item]
    if isinstance(result, DeadLetter):
        assert "\n" not in result.detail
        return False
    schema = codec().by_header[data[:HEADER_SIZE]]
    _is_canonical(data, schema)
    record = to_json(TOPIC_OF_KIND[kind], data, codec())
    if codec().schemas[schema.name] is schema:
        protocol = next(
            (each for (of, each), name in codec().inputs.items() if of == kind and name == schema.name), None
        )
        assert encode_input(codec(), kind, record, protocol or PROTOCOLS[0]) == data
    return True


def _check_output(data: bytes) -> bool:
    schema = codec().by_header.get(data[:HEADER_SIZE])
    if schema is None or schema.topic is None or schema.name == ORDER_SCHEMA:
        return False
    try:
        to_json(schema.topic, data, codec())
    except UserError:
        return False
    _is_canonical(data, schema)
    return True


def _outputs() -> list[bytes]:
    named = (schema for name, schema in codec().schemas.items() if schema.topic and name != ORDER_SCHEMA)
    return [value for schema in named for value in _values(schema)]


def _orders() -> list[bytes]:
    return [encode_order("polkadot", frozenset(_SKIPS[:count])) for count in range(len(_SKIPS) + 1)]


def _check_order(data: bytes) -> bool:
    order = decode_order(data, Source("blocks", 0, 0))
    if order is None:
        return False
    _is_canonical(data, codec().by_header[data[:HEADER_SIZE]])
    return True


_SKIPS = (Source("blocks", 0, 0), Source("candidates", 3, 2**40), Source("x.downward-messages", 2**32 - 1, 1))


@cache
def _bodies() -> SchemaSet:
    return SchemaSet.read(files("validator_xcmp_bodies") / "schemas")


@cache
def _body_schemas() -> dict[bytes, Schema]:
    return {each.header: each for each in _bodies().current.values()}


def _check_body(data: bytes) -> bool:
    schema = _body_schemas().get(data[:HEADER_SIZE])
    if schema is None:
        return False
    try:
        RecordFormat(_bodies(), schema.name).decode(data)
    except RecordUnreadable:
        return False
    _is_canonical(data, schema)
    return True


_ASKED = (
    '{"para_id": 2000, "hrmp_watermark": 9, "horizontal_messages": [{"recipient": 2004, "data": "00"}]}',
    '{"para_id": 2000, "hrmp_watermark": 0, "upward_messages": ["0102"], "processed_downward_messages": 0}',
)


@cache
def _answerer() -> Answerer:
    paras = [{"para_id": para, "balance": 10**12} for para in (2000, 2004)]
    chain = {"host_configuration": {"preset": "polkadot-2023"}, "genesis_paras": paras}
    standings = in_memory({"chains": {"polkadot": chain}})._backend
    assert isinstance(standings, MemoryBackend)
    return Answerer(standings)


def _dry_runs() -> list[bytes]:
    return [encode_request(DryRunRequest("polkadot", b"a", "candidates", record)) for record in _ASKED]


def _check_dry_run(data: bytes) -> bool:
    answer = decode_answer(_answerer().answer(data, 0, 7))
    assert answer.offset == 7
    assert (answer.refused is None) == bool(answer.verdicts)
    assert "a bug" not in (answer.refused or "")
    return answer.refused is None


TARGETS = (
    *(
        Target(f"avro-{TOPIC_OF_KIND[kind]}", partial(_input_seeds, kind), partial(_check_input, kind))
        for kind in RecordKind
    ),
    Target("avro-outputs", _outputs, _check_output),
    Target("avro-orders", _orders, _check_order),
    Target("dry-runs", _dry_runs, _check_dry_run, (b"channel-requests", b"downward-messages"), per_test=2_000),
    Target("avro-bodies", lambda: [value for each in _body_schemas().values() for value in _values(each)], _check_body),
)
