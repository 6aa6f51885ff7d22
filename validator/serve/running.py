# SPDX-License-Identifier: Apache-2.0
"""A running `validator serve`: its topics and its server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from validator.client.backend import KafkaBackend, Manner
from validator.client.streams import BEGINNING
from validator.client.topics import readable_topics
from validator.kafka.settings import SERVED
from validator.plugin.pack import use_artefacts
from validator.serve.app import WebLists
from validator.serve.limits import KAFKA_S, POLLED_BYTES_MAX, POLLED_MAX
from validator.web.security import Secrets
from validator.web.server import RunningServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from validator.config import Config


class RunningLists:
    """Answers from `start` to `stop`, both part of its context manager.

    ``config`` has the brokers' addresses; a ``token`` is made if none is given. Errors of the constructor, in order, each a `UserError`:
    the address cannot be listened on, Kafka does not answer, the topic `verdicts` is missing.
    """

    def __init__(self, config: Config, listen: str, say: Callable[[str], None], token: str | None = None) -> None:
        self._server = RunningServer(listen)
        try:
            use_artefacts(config.plugins.artefacts)
            backend = KafkaBackend(config, Manner(SERVED, KAFKA_S, POLLED_MAX, POLLED_BYTES_MAX))
            topics = readable_topics(config)
            backend.read("verdicts", BEGINNING).close()
        except BaseException:
            self._server.stop()
            raise
        self.host, self.port = self._server.host, self._server.port
        self.secrets = Secrets() if token is None else Secrets(token)
        protocols = {name: chain.protocol for name, chain in config.chains.items()}
        self.web = WebLists(backend, topics, protocols, self.secrets, say, self._server.stopping)

    @property
    def url(self) -> str:
        """The address with its token."""
        return self._server.url(self.secrets.token)

    def __enter__(self) -> Self:
        self._server.start(self.web.app(self.host, self.port))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()
        self.web.readers.close()

    def wait(self) -> None:
        """Wait until the server ends by itself, or `KeyboardInterrupt`."""
        self._server.wait()
