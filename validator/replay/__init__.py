# SPDX-License-Identifier: Apache-2.0
"""Runs conformance traces through the pure rules: no Kafka, no Spark, no Java. See `docs/trace-format.md`."""
