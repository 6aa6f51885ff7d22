# SPDX-License-Identifier: Apache-2.0
"""A running console: its readers and its server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from validator.console.app import WebConsole
from validator.console.context import ConsoleContext
from validator.console.follow import Follower, StoredLanes
from validator.console.journeys import message_decoder
from validator.console.letters import Letters
from validator.console.model import Model
from validator.lanes.configured import configured_codec
from validator.plugin.pack import use_artefacts
from validator.transports.lines import fed_lanes
from validator.web.security import Secrets
from validator.web.server import RunningServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from validator.config import Config


class RunningConsole:
    """A console that answers from `start` to `stop`, both part of its context manager.

    ``config`` has the brokers' addresses. Errors of the constructor, in order, each a `UserError`: the address cannot be listened on, Kafka
    does not answer, a topic is missing.
    """

    def __init__(self, config: Config, listen: str, say: Callable[[str], None], *, read_only: bool = False) -> None:
        self._server = RunningServer(listen)
        try:
            use_artefacts(config.plugins.artefacts)
            self.model = Model(config.chains, configured_codec(config), message_decoder(config))
            self.follower = Follower(config, self.model, say)
        except BaseException:
            self._server.stop()
            raise
        self.host, self.port = self._server.host, self._server.port
        self.secrets = Secrets()
        console = ConsoleContext(
            config, self.model, self.follower, StoredLanes(config), Letters(config, say), read_only, fed_lanes(config)
        )
        self._web = WebConsole(console, self.secrets, say, self._server.stopping)

    @property
    def url(self) -> str:
        """The address with its token."""
        return self._server.url(self.secrets.token)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to read and to answer."""
        self.follower.start()
        self._server.start(self._web.app(self.host, self.port))

    def wait(self) -> None:
        """Wait until the server ends by itself, or `KeyboardInterrupt`."""
        self._server.wait()

    def stop(self) -> None:
        """Stop answering, then reading."""
        self._server.stop()
        self.follower.stop()
