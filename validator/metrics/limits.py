# SPDX-License-Identifier: Apache-2.0
"""The limits of metrics."""

from __future__ import annotations

from typing import Final

PARAS_MAX_DEFAULT: Final = 200
"""Paras of a lane that have separate series, unless `[metrics] paras_max` says otherwise."""

CHANNELS_MAX_DEFAULT: Final = 500
"""Channels of a lane that have separate series, unless `[metrics] channels_max` says otherwise."""

SUBJECTS_MAX: Final = 10_000
"""The greatest value of either key: more series than that do not fit a report or a scrape."""

KINDS_PER_PARA_MAX: Final = 8
"""Error kinds of one para that a worker names; it counts the rest as `OTHER`, until it ends."""

OTHER: Final = "other"

REPORT_BYTES_MAX: Final = 900 * 1024
"""Bytes of a report, which is one record on Kafka. A larger one goes without paras and channels."""

SAMPLE_SHARE_MAX: Final = 0.02
"""Share of a worker's time that reading the levels of paras and channels may take: a large chain is read less often than its batches."""

ARRIVALS_MAX: Final = 10_000
"""Blocks of a lane whose arrival is remembered until they are executed. Beyond it, every other one is forgotten."""

ARRIVALS_READ_AGAIN: Final = 1_000
"""Block records before the checkpoint's position that are read at a start, as their blocks may not have been executed."""

VALUE_MAX: Final = 1e300
"""The greatest value; integers beyond it are no floats."""

REPORT_INTERVAL_S: Final = 10.0
"""Seconds between two reports of a transport."""

REPORT_AGE_S_MAX: Final = 60.0
"""Seconds without a report after which a transport's values disappear."""

REPORTERS_MAX: Final = 1_000
"""Lanes and transports whose reports are kept at once."""

SERIES_PER_REPORTER_MAX: Final = 200_000
"""Series that a lane or a transport may have."""

CONNECTIONS_MAX: Final = 16
"""Connections that an endpoint of metrics answers at once. Beyond it, the oldest one without a complete request gives its place to a new
one; if there is none, the new one is closed."""

REQUEST_S_MAX: Final = 10.0
"""Seconds that a client of the endpoint has for its request, as a whole."""

ANSWER_S_MAX: Final = 30.0
"""Seconds that it has to take the answer."""

HEALTH_S_MAX: Final = 10.0
"""Seconds that `validator health` waits for an endpoint's answer, or for more of it. A page of 64 lanes takes a busy machine six; the few
values that the command asks for do not wait for the page, only for the process that makes it."""

PAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes that it reads of the answer."""

OWN_METRICS_MAX: Final = 64
"""Metrics that a transport or a job of a plugin may declare."""

OWN_LABELS_MAX: Final = 4
"""Labels of one of them."""

OWN_SERIES_MAX: Final = 2_000
"""Series of all metrics of one transport, or of one key of a job."""

OWN_NAMES_MAX: Final = 1_000
"""Metrics of plugins that an endpoint serves."""

HELP_CHARACTERS_MAX: Final = 200
"""Characters of the help text of a plugin's metric."""

LABEL_CHARACTERS_MAX: Final = 200
"""Characters of a label."""

FAULT_CHARACTERS_MAX: Final = 300
"""Characters of what is said of a fault in a plugin's metrics."""

MEASURE_S_MAX: Final = 2.0
"""Seconds that a transport has to return its own values; without them its report goes without."""
