# SPDX-License-Identifier: Apache-2.0
"""Exit codes of the `validator` command, one place for code and documentation."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""All went well."""

DISAGREEMENT: Final = 1
"""The command ran and its answer is no: a verdict differs, a trace fails, a schema is incompatible, a state does not match its inputs,
nothing runs."""

USER_ERROR: Final = 2
"""Bad input, configuration or environment: one line on stderr says which, what was expected and what was found. A job that refuses to
start ends so, too."""

STOPPED: Final = 3
"""The job stopped by itself because continuing would have lost something: a plugin that a worker lacks, a batch that fails again and
again, inputs that retention removed, a Kafka that does not accept records; or what it waited for was away for longer than
`[job] give_up_after`. One line says why.
Nothing is lost, and the job continues where it stopped once the cause is gone. A job that a signal has killed ends its command so, too. A
transport that had lost its lease could not begin again as standby."""

INTERNAL_ERROR: Final = 70
"""A bug: a traceback is printed."""

INTERRUPTED: Final = 130
"""Ctrl-C, before the command had something to stop in an orderly way, or a second time."""

PIPE_CLOSED: Final = 141
"""Whoever read standard output ended, as `head` does, before the command had its answer: what a shell reports for SIGPIPE."""
