# SPDX-License-Identifier: Apache-2.0
"""Measurements: `make bench`. Ratios within one run, several times; figures are printed as a table and written as JSON."""
