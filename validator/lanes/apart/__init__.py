# SPDX-License-Identifier: Apache-2.0
"""Lanes with handlers, each in a separate process, which has no secrets and cannot reach any.

A handler is code of its author. In the job's worker it could stop the batch of every lane by not returning, change the program under
another lane by replacing a function, and read what the worker's Kafka clients know. Here it has one lane, and all that it can spoil is
that lane. The worker keeps what the others depend on: Kafka, the transaction, Spark's state, and the decision that a process has failed.
"""
