# SPDX-License-Identifier: Apache-2.0
"""The Spark job: everything that imports pyspark, or reads files that Spark writes."""
