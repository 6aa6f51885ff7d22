# SPDX-License-Identifier: Apache-2.0
"""Measurements: `make bench`. Ratios compare figures of one run, repeated several times; figures go to a table and to JSON."""
