# SPDX-License-Identifier: Apache-2.0
"""A model with a simulated chain, and the web application on it, without Kafka."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from starlette.testclient import TestClient

from tests.console.records import HOSTILE, dead_letter, journeys_of, output_of, simulated
from tests.unit.lanes.chains import config_of
from validator.console.app import WebConsole
from validator.console.context import ConsoleContext
from validator.console.journeys import message_decoder
from validator.console.model import Model
from validator.errors import UserError
from validator.lanes.configured import configured_codec
from validator.web.security import Secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from validator.config import Config
    from validator.console.model import KeptVerdict, LaneModel
    from validator.job.lag import Lag
    from validator.kafka.reader import TopicRecord

PORT = 8480
WAIT_S = 60.0
BASE = f"http://127.0.0.1:{PORT}"


def wait_until(found: Callable[[], object]) -> None:
    """Wait until something is true; the bound is only for a broken program."""
    deadline = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def chain_records() -> Sequence[TopicRecord]:
    """Return what 60 blocks of a simulated chain put on Kafka."""
    return tuple(output_of(simulated()))


@pytest.fixture(scope="session")
def message_records() -> Sequence[TopicRecord]:
    """Return what the job `journeys` writes about that chain."""
    return tuple(journeys_of(simulated()))


@pytest.fixture(scope="session")
def console_config() -> Config:
    """Return the configuration of that chain, whose job has no folder."""
    return config_of(simulated(), job={"directory": "nowhere"})


class NoKafka:
    """Stands in for what reads Kafka and the checkpoint: nothing is read, and nothing can be."""

    stale_since_ms = None
    problem = ""
    lags: ClassVar[dict[str, Lag]] = {}
    caught_up = Event()

    def para(self, *_: object) -> Any:
        raise UserError("there is no Kafka here")

    show = raw = check = put_back = para


NoKafka.caught_up.set()


@dataclass(frozen=True, slots=True)
class Web:
    """The application, a client that has entered, and what its pages show."""

    app: WebConsole
    client: TestClient
    model: Model
    log: list[str]

    @property
    def lane(self) -> LaneModel:
        return self.model.lanes["polkadot"]

    def rejected(self, kind: str) -> KeptVerdict:
        """Return the newest rejection of a kind."""
        return next(verdict for verdict in self.lane.newest() if verdict.error == kind)

    def get(self, path: str) -> str:
        """Return a page."""
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text


def client_of(app: WebConsole) -> TestClient:
    """Return a client without the cookie."""
    return TestClient(app.app("127.0.0.1", PORT), base_url=BASE, follow_redirects=False)


@pytest.fixture
def web(chain_records: Sequence[TopicRecord], message_records: Sequence[TopicRecord], console_config: Config) -> Web:
    """Return the application on a separate model, with a hostile dead letter."""
    model = Model(console_config.chains, configured_codec(console_config), message_decoder(console_config))
    model.take([*chain_records, *message_records])
    model.take([dead_letter(f"lane: {HOSTILE}", b"\x00<script>")])
    log: list[str] = []
    app = WebConsole(ConsoleContext(console_config, model, *[NoKafka()] * 3), Secrets(), log.append)
    client = client_of(app)
    assert client.get(f"/?token={app.secrets.token}").status_code == 303
    return Web(app, client, model, log)
