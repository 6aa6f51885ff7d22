# SPDX-License-Identifier: Apache-2.0
"""The service seen from outside: the job's process, what goes into its topics and what comes out of them. No Spark in here."""
