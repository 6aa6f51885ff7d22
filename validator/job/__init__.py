# SPDX-License-Identifier: Apache-2.0
"""The job from outside: what a start compares, the process, its health and figures, and orders to its lanes.

In come the configuration and the events of the process's log. Out go processes, records of orders, and refusals of one line.
"""
