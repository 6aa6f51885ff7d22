# SPDX-License-Identifier: Apache-2.0
"""Plays files of traces and vectors (format channel-vectors/1) through the core."""
