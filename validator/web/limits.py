# SPDX-License-Identifier: Apache-2.0
"""Every limit of connections and requests: how many, how large, how long."""

from __future__ import annotations

from typing import Final

FORM_BYTES_MAX: Final = 1 << 20
"""Bytes of a posted form."""
QUERY_MAX: Final = 2_000
"""Characters of a query."""
STREAMS_MAX: Final = 20
"""Open streams of server-sent events."""
REQUESTS_AT_ONCE_MAX: Final = 64
"""Connections, those of streams not counted."""
HEAD_S: Final = 10.0
"""Seconds in which the whole head of a request has to arrive, after the connection was made or the last answer was given."""
BODY_S: Final = 30.0
"""Seconds in which the rest of a request has to arrive after its head."""
ANSWER_S: Final = 30.0
"""Seconds in which a client has to take what waits to be sent to it."""
IDLE_S: Final = 5
"""Seconds after an answer in which the next request has to begin."""
FIELDS_MAX: Final = 50
"""Fields of a query or a form."""
HEARTBEAT_S: Final = 15.0
"""Seconds after which a stream without news gets a comment."""
STOP_S: Final = 2
"""Seconds that open requests have when the server stops."""
