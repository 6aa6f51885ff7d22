# SPDX-License-Identifier: Apache-2.0
"""How the settings of the schema registry stand in a table of Kafka's, which every reader of records gets."""

from typing import Final

REGISTRY_PREFIX: Final = "schema.registry."
"""Prefix of the keys that are for the registry's client only, in its own names (`validator.kafka.registry`)."""
