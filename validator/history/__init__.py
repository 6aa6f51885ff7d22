# SPDX-License-Identifier: Apache-2.0
"""Executes recorded inputs again: to verify and audit lanes, before a rebuild, and to ask what other rules would have said.

In come a lane's inputs and outputs on Kafka, of two deployments if these are compared. Out go findings; nothing here writes to a topic.
"""
