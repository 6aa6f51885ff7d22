# SPDX-License-Identifier: Apache-2.0
"""The chain as the judge: what the lanes say is compared with what the relay chain did (docs/follow-a-chain.md)."""
