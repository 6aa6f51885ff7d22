# SPDX-License-Identifier: Apache-2.0
"""The protocol that comes with the product, as the plugin that it is."""
