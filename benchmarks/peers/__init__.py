# SPDX-License-Identifier: Apache-2.0
"""The same codec and core without Spark, as baselines for the job. Each module is a separate program.

Each takes CONFIGURATION TOTAL, reads TOTAL records, writes the lane's output and prints the seconds from its first record to the last
acknowledgement. Like the job's workers, they run without the cyclic garbage collector.
"""
