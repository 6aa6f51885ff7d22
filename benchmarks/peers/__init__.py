# SPDX-License-Identifier: Apache-2.0
"""The same codec and core without Spark: what the job is measured against. Each is a program of its own.

Each takes CONFIGURATION TOTAL, reads TOTAL records, writes what the lane tells and prints the seconds from its first record to the last
acknowledgement. Like the job's workers they keep the cyclic garbage collector out of the way.
"""
