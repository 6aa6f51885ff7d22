# SPDX-License-Identifier: Apache-2.0
"""Channel over TLS: asyncio connections, their listener and connector, certificates. Source: channel_rules 1.2.6, 3.2 to 3.4."""
