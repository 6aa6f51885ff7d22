# SPDX-License-Identifier: Apache-2.0
"""The rules: pure, standard library only, no clock, no entropy, no logging, no I/O.

Everything that decides a verdict lives below this package. What it may look at is an argument; what it does is a return value or a change
of the state it was handed.
"""
