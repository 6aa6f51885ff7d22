# SPDX-License-Identifier: Apache-2.0
"""Runs transports: exactly one active process of each name, whose records and cursors are committed together.

In come what a transport's plugin enqueues and the topics that it watches. Out go records on Kafka, and reports of its metrics.
"""
