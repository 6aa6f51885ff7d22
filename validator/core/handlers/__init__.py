# SPDX-License-Identifier: Apache-2.0
"""Upward-message handlers: what they are, what they may touch, and how one message is dispatched to one of them."""
