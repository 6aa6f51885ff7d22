# SPDX-License-Identifier: Apache-2.0
"""The job as whoever starts it sees it: what a start compares, the process, its health and figures, and orders to its lanes.

In come the configuration, the checkpoint, what Kafka and a schema registry hold, and the process's log. Out go processes, records of
orders, and refusals of one line. What runs in these processes is `streaming`.
"""
