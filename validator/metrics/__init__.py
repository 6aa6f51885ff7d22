# SPDX-License-Identifier: Apache-2.0
"""The definition of every metric, and the reports in which processes pass their values on.

In come the values of a process, and other processes' reports. Out goes the text that Prometheus scrapes.
"""
