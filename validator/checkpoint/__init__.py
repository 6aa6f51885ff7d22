# SPDX-License-Identifier: Apache-2.0
"""The files that a job keeps, for those who look at them from outside, and whether Kafka still has what they need.

In comes a job's folder, which may be in use. Out go batches, offsets, markers and refusals; what advises to remove anything was seen twice.
"""
