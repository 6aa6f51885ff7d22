# SPDX-License-Identifier: Apache-2.0
"""Errors of the user: reported in one line, never as a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or environment; the message names the thing, what was expected and what was found.

    The command line prints it as one line on stderr and exits with code 2.
    """


class Unavailable(UserError):
    """Something outside does not answer now, such as Kafka; the same request may succeed later (`validator.kafka.retry.passes`)."""


class GivenUp(UserError):
    """Something outside was away for longer than `[job] give_up_after`; the command line exits with code 3."""


class LeaseLost(UserError):
    """A transport is no longer the active process of its name; the command line exits with code 3."""


class PluginFailed(Exception):
    """A plugin's code raised what its contract does not allow: a bug of the plugin. The text says where, the cause is what it raised."""
