# SPDX-License-Identifier: Apache-2.0
"""A lane in service: how it is defined, fed, told about, and kept over restarts. No Spark and no Kafka in here."""
