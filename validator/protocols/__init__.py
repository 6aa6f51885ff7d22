# SPDX-License-Identifier: Apache-2.0
"""The protocol that ships with the product, packaged as a plugin."""
