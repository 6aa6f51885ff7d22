# SPDX-License-Identifier: Apache-2.0
"""The deterministic core: pure, standard library only, with no clock, entropy, logging or I/O.

Everything that decides a verdict lives in this package. It reads only its arguments, and acts only through return values and changes to the
state that it is given.
"""
