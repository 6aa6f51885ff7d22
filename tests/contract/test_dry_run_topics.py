# SPDX-License-Identifier: Apache-2.0
"""A client's dry runs on a real broker: the same answers as in memory, and one of two processes answers."""

from __future__ import annotations

import asyncio
import re
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from validator.ask.dry_run_transport import dry_run_plugin, own_topics
from validator.client import UserError, aio, connect, in_memory
from validator.client.backend import MemoryBackend
from validator.config import Config
from validator.kafka.topics import create_topics
from validator.plugin.registry import configure, transports_of
from validator.topics import CURSORS_TOPIC, DRY_RUN_TOPICS, TOPICS
from validator.transports.lines import transport_lines
from validator.transports.runner import Chosen, TransportGroup, record_forms, run_transport

if TYPE_CHECKING:
    from pathlib import Path

LANE = "polkadot"
PARAS = [{"para_id": 2000, "balance": 10**12}, {"para_id": 2004, "balance": 10**12}]
CHAINS = {LANE: {"host_configuration": {"preset": "polkadot-2023"}, "genesis_paras": PARAS}}
BAD = {"para_id": 2000, "hrmp_watermark": 9, "horizontal_messages": [{"recipient": 2004, "data": b"x"}]}
GOOD = {"para_id": 2000, "hrmp_watermark": 0, "upward_messages": [b"x"]}


def test_client_is_answered_on_topics_as_in_memory(kafka: dict[str, Any], tmp_path: Path) -> None:
    prefix = f"dry-{tmp_path.name}."
    tables = {"chains": CHAINS, "kafka": kafka, "topics": {"prefix": prefix}}
    config = Config.model_validate(tables)
    create_topics(kafka, prefix=prefix, topics=[*TOPICS, CURSORS_TOPIC])
    with in_memory({"chains": CHAINS}) as lanes, connect(tables) as client:
        with pytest.raises(UserError, match="dry-run-requests does not exist"):
            client.dry_run(LANE, GOOD)
        create_topics(kafka, prefix=prefix, topics=DRY_RUN_TOPICS)
        with pytest.raises(TimeoutError, match="does `validator transport run dry-run` run"):
            client.dry_run(LANE, GOOD, timeout_s=0.2)  # it is answered later, to nobody
        standings = lanes._backend
        assert isinstance(standings, MemoryBackend)
        plugin = dry_run_plugin(lambda _: standings)
        (transport,) = transports_of(plugin, "{}")
        chosen = Chosen("dry-run", plugin, transport, configure(plugin, "{}"), record_forms(config, own=own_topics()))
        group = TransportGroup(kafka, prefix, "dry-run")
        stop, active, standby = Event(), [Event(), Event()], Event()
        threads = [
            Thread(
                target=run_transport,
                args=(chosen, group, stop, lambda _: standby.set(), lambda _, ready=ready: ready.set()),
                daemon=True,
            )
            for ready in active
        ]
        try:
            threads[0].start()
            assert active[0].wait(60)
            threads[1].start()
            for record in (BAD, GOOD):
                assert client.dry_run(LANE, record) == lanes.dry_run(LANE, record)

            async def ask() -> Any:
                async with await aio.connect(tables) as asking:
                    return await asking.dry_run(LANE, BAD)

            assert asyncio.run(ask()) == lanes.dry_run(LANE, BAD)
            with pytest.raises(UserError, match="hrmp_watermark"):
                client.dry_run(LANE, {**GOOD, "hrmp_watermark": -1})
            assert standby.wait(60)
            said = transport_lines(config)
            assert list(said) == [LANE]
            assert re.fullmatch(r"dry runs: \S+@\S+:\d+ \(.+\) answers dry-run-requests", said[LANE][0])
            assert not active[1].is_set()
        finally:
            stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join(60)
        assert transport_lines(config) == {}
