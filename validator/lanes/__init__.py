# SPDX-License-Identifier: Apache-2.0
"""A running lane: its definition, processing, output and persistence across restarts. This package uses neither Spark nor Kafka."""
