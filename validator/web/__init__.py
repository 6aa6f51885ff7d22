# SPDX-License-Identifier: Apache-2.0
"""What the console and `validator serve` share: who may ask, what a connection may cost, and the server."""
