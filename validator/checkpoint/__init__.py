# SPDX-License-Identifier: Apache-2.0
"""The files that a job keeps, and each lane's markers on Kafka: for the job, and for those who look from outside.

In come a job's folder, which may be in use, and Kafka's topics. Out go batches, offsets, markers and refusals; a line that advises to
remove something rests on two looks.
"""
