# SPDX-License-Identifier: Apache-2.0
"""What the product measures: the definition of every metric, and the reports in which processes pass their values on."""
