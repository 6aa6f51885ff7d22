# SPDX-License-Identifier: Apache-2.0
"""Upward-message handlers: what they are, what they may access, and how a message is dispatched to one of them."""
