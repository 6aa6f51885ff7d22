# SPDX-License-Identifier: Apache-2.0
"""Kafka: topics, client configuration, jars and the embedded broker."""
