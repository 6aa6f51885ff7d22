# SPDX-License-Identifier: Apache-2.0
"""The service from outside: the job's process, the records sent to its topics and those read from them. Nothing here imports Spark."""
