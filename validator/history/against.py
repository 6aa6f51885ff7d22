# SPDX-License-Identifier: Apache-2.0
"""Compares what two deployments have emitted for the same lane: the first block whose receipts differ, and what else differs there."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.codec.json_form import comparable_json, shown_json, to_json
from validator.config.meaning import configuration_meaning
from validator.hexadecimal import to_hex
from validator.history.emitted import emitted_values
from validator.kafka.reader import TopicReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.config import Chain
    from validator.core.types import BlockNumber
    from validator.kafka.settings import KafkaTable

EXPLAINING: Final = ("verdicts", "dispatches", "channel-events", "ingress-events")
"""The topics that say why receipts differ, in the order in which a block emits them."""

NOT_COMPARED: Final = ("runtime_digest",)
"""Fields that name versions of programs."""


class Deployment(NamedTuple):
    """Where a deployment's output is, and what it is called in a comparison."""

    name: str
    kafka: KafkaTable
    prefix: str


class Unequal(NamedTuple):
    """Two values at one place of a record; None where one side has no such record."""

    topic: str
    place: str
    field: str
    own: Any
    other: Any


@dataclass(slots=True)
class Against:
    """The result of a comparison; ``block`` is the first one whose receipts differ, if any does."""

    lane: str
    compared: int = 0
    roots: int = 0
    """Receipts compared that have a state root on both sides."""
    last_block: BlockNumber | None = None
    last_equal_root: BlockNumber | None = None
    """The last block before the difference whose state roots are equal."""
    block: BlockNumber | None = None
    differences: list[Unequal] = field(default_factory=list)
    settings: list[Unequal] = field(default_factory=list)
    """Keys of the chain's configuration that differ."""
    digests: tuple[str, str] | None = None
    """The runtime digests of both receipts of ``block``."""


def compare_deployments(own: Deployment, other: Deployment, lane: str) -> Against:
    """Compare two deployments' receipts of a lane, up to the first block that differs.

    Receipts of blocks that only one side has are left out before the first common block and after the last. Raises `UserError` if a topic
    cannot be read.
    """
    result = Against(lane)
    with (
        TopicReader(own.kafka, own.prefix, ["receipts"]) as left,
        TopicReader(other.kafka, other.prefix, ["receipts"]) as right,
    ):
        ones, others = _emitted(left, lane, "receipts"), _emitted(right, lane, "receipts")
        one, two = next(ones, None), next(others, None)
        while one is not None and two is not None:
            if result.compared == 0 and one.block != two.block:
                # one side began later, or retention has removed its first receipts
                if one.block < two.block:
                    one = next(ones, None)
                else:
                    two = next(others, None)
                continue
            if not _equal(result, one.value, two.value):
                break
            one, two = next(ones, None), next(others, None)
    if result.block is not None:
        for topic in EXPLAINING:
            result.differences += _explain(own, other, lane, topic, result.block)
    return result


def different_settings(own: Chain, other: Chain) -> list[Unequal]:
    """Return what affects verdicts and differs between two configurations of a chain. Raises `UserError`."""
    ones, others = _flat(configuration_meaning(own)), _flat(configuration_meaning(other))
    return [
        Unequal("configuration", "", name, ones.get(name), others.get(name))
        for name in dict.fromkeys((*ones, *others))
        if ones.get(name) != others.get(name)
    ]


def _equal(result: Against, own: bytes, other: bytes) -> bool:
    """Count a pair of receipts, and note how they differ; return whether they are equal."""
    one, two = comparable_json("receipts", own, other, digits=to_hex)
    result.compared += 1
    result.last_block = one["block"]
    both = one["state_root"] is not None and two["state_root"] is not None
    result.roots += both
    unequal = [
        Unequal("receipts", "", name, one[name], two[name])
        for name in one
        if one[name] != two.get(name) and name not in NOT_COMPARED and (both or name != "state_root")
    ]
    if not unequal:
        result.last_equal_root = one["block"] if both else result.last_equal_root
        return True
    result.block = min(one["block"], two["block"])
    result.digests = one["runtime_digest"], two["runtime_digest"]
    result.differences += unequal
    return False


class _Emitted(NamedTuple):
    block: BlockNumber
    value: bytes


def _emitted(reader: TopicReader, lane: str, topic: str) -> Iterator[_Emitted]:
    return (_Emitted(to_json(topic, value)["block"], value) for value in emitted_values(reader, lane))


def _explain(own: Deployment, other: Deployment, lane: str, topic: str, block: BlockNumber) -> Iterator[Unequal]:
    """Yield how the records of a block differ, place by place."""
    ones, others = (_of_block(each, lane, topic, block) for each in (own, other))
    for place in dict.fromkeys((*ones, *others)):
        left, right = ones.get(place), others.get(place)
        if left is None or right is None:
            shown = [None if value is None else _summary(shown_json(topic, value)) for value in (left, right)]
            yield Unequal(topic, place, "record", *shown)
            continue
        one, two = comparable_json(topic, left, right, digits=to_hex)
        for name in dict.fromkeys((*one, *two)):
            if name not in NOT_COMPARED and one.get(name) != two.get(name):
                yield Unequal(topic, place, name, one.get(name), two.get(name))


def _of_block(deployment: Deployment, lane: str, topic: str, block: BlockNumber) -> dict[str, bytes]:
    """Return the records of a block by their place in it."""
    with TopicReader(deployment.kafka, deployment.prefix, [topic]) as reader:
        for number, group in groupby(_emitted(reader, lane, topic), key=lambda each: each.block):
            if number == block:
                return {_place(to_json(topic, each.value)): each.value for each in group}
    return {}


def _place(record: dict[str, Any]) -> str:
    return f"{record.get('kind', '')} {record['index']}".strip()


def _summary(record: dict[str, Any]) -> str:
    shown = ("para_id", "event", "sender", "recipient", "outcome", "ok")
    return ", ".join(f"{name} {record[name]}" for name in shown if name in record)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {
            name: leaf
            for key, member in value.items()
            for name, leaf in _flat(member, f"{path}.{key}" if path else str(key)).items()
        }
    return {path: value}
