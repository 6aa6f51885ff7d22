# SPDX-License-Identifier: Apache-2.0
"""The gateway: between the sessions of peers and the topics of the product. Source: channel_rules 5.2."""
