# SPDX-License-Identifier: Apache-2.0
"""Executes recorded inputs again: to verify, rebuild, audit and compare lanes, or to ask what other rules would have said.

In come a lane's inputs on Kafka and what it has emitted. Out go findings; nothing here writes to a topic.
"""
