# SPDX-License-Identifier: Apache-2.0
"""A running `validator serve` on a real broker, whose topics have three partitions, and records in one transaction each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.console.records import dead_letter, output_of, simulated
from tests.sending import committed, in_transactions, send
from tests.unit.lanes.chains import config_of
from validator.client.topics import RuleNames, output_topic
from validator.errors import UserError
from validator.kafka.topics import create_topics
from validator.serve.running import RunningLists

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from validator.config import Config

PREFIX = "serve."
BLOCKS = 12
LETTERS = 40
WAIT_S = 60.0


@dataclass(frozen=True)
class Served:
    """A server, a client with its token, and what it should say."""

    running: RunningLists
    client: httpx2.Client
    config: Config

    def records(self, topic: str) -> dict[int, list[dict[str, Any]]]:
        """Return a topic's records in JSON by partition, as `validator watch` reads them."""
        rules, found = RuleNames({"polkadot": "router"}), defaultdict(list)
        for each in committed(self.config.kafka, PREFIX, [topic]):
            try:
                record = output_topic(topic).decode(each.value)
            except UserError:  # a test has written it
                continue
            found[each.partition].append(rules.add(record) if topic == "verdicts" else record)
        return dict(found)

    def get(self, path: str, status: int = 200, **parameters: Any) -> Any:
        """Return the JSON of an answer."""
        answer = self.client.get(path, params=parameters)
        assert answer.status_code == status, answer.text
        kind = "application/json" if status == 200 else "application/problem+json"
        assert answer.headers["content-type"] == kind
        return answer.json()

    def walk(self, topic: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the records of all pages of a list."""
        items: list[dict[str, Any]] = []
        page = self.get(f"/v1/{topic}", **parameters)
        parameters.pop("start", None)
        while True:
            items += page["items"]
            if page["at_end"]:
                return items
            page = self.get(f"/v1/{topic}", **{**parameters, "cursor": page["next"]})

    def letters(self, *details: str) -> None:
        """Write dead letters, each in a separate transaction."""
        made = (dead_letter(each, b"\x01") for each in details)
        topic = f"{PREFIX}dead-letters"
        in_transactions(
            self.config.kafka, [(topic, each.encode(), made.value) for each, made in zip(details, made, strict=True)]
        )


def by_partition(records: Mapping[int, list[dict[str, Any]]], found: list[dict[str, Any]]) -> bool:
    """Return whether the found records are all of them, each once, in the order of each partition."""
    rest = {partition: iter(each) for partition, each in records.items()}
    where = {repr(record): partition for partition, each in records.items() for record in each}
    return len(found) == sum(map(len, records.values())) and all(
        next(rest[where[repr(record)]]) == record for record in found
    )


@pytest.fixture(scope="module")
def served(kafka: dict[str, object]) -> Iterator[Served]:
    chains = [
        simulated(blocks=BLOCKS, lane=lane, seed=seed)
        for lane, seed in (("polkadot", 11), ("kusama", 12), ("paseo", 13))
    ]
    config = config_of(chains[0], job={"directory": "nowhere"}, kafka=kafka, topics={"prefix": PREFIX})
    if create_topics(kafka, prefix=PREFIX, output_partitions=3)[f"{PREFIX}verdicts"]:
        records = [each for chain in chains for each in output_of(chain) if each.topic != "blocks"]
        send(kafka, PREFIX, [(each.topic, each.key, each.value) for each in records])
    with RunningLists(config.model_copy(update={"chains": config.chains}), "127.0.0.1:0", lambda _: None) as running:
        base, _, token = running.url.partition("/?token=")
        with httpx2.Client(base_url=base, timeout=WAIT_S, headers={"authorization": f"Bearer {token}"}) as client:
            made = Served(running, client, config)
            if not committed(kafka, PREFIX, ["dead-letters"]):
                made.letters(*(f"letter {number}" for number in range(LETTERS)))
            yield made
