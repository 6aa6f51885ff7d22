# SPDX-License-Identifier: Apache-2.0
"""Dead letters, and their way back to the topics that they came from.

In come dead letters and the ledger of replays. Out go the repaired records, each once.
"""
