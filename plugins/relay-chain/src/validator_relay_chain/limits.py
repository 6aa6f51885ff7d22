# SPDX-License-Identifier: Apache-2.0
"""All limits of the plugin, with their units."""

from __future__ import annotations

from typing import Final

# --- calls to nodes ---

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of one answer that is read. Public nodes cut answers off at 15 MB; a private node may send more."""

CONNECT_S_MAX: Final = 15.0
"""Seconds that a connection may take, TLS included."""

ANSWER_S_MAX: Final = 60.0
"""Seconds that an answer may take. Public nodes are slow with keys and proofs."""

IN_FLIGHT: Final = 4
"""Blocks that are fetched at once, a request each at a time, unless the configuration says otherwise: public nodes refuse more."""

IN_FLIGHT_MAX: Final = 256
"""Greatest number of such blocks, for nodes of one's own."""

HASHES_PER_CALL: Final = 256
"""Hashes of blocks that one call asks for."""

PAUSE_S_MIN: Final = 0.5
"""Seconds of the first pause before a call is repeated; each further one in a row is twice as long."""

PAUSE_S_MAX: Final = 60.0
"""Seconds of the longest pause."""

PAUSE_ENDING_S_MAX: Final = 8.0
"""Seconds of the longest pause after a failure that has an end, so that the end comes within a minute."""

PAUSE_JITTER: Final = 0.5
"""Share of a pause that is random, so that many followers do not come back at once."""

CALLS_PER_NODE_MAX: Final = 3
"""Attempts at a call with one node before a spare takes over."""

START_ROUNDS_MAX: Final = 2
"""Attempts at each node before the first answer of any kind, after which nothing is expected to answer."""

REFUSED_S_MAX: Final = 30.0
"""Seconds after which a call is given up that every node answers with an unknown error, or wrongly."""

WRONG_PER_NODE_MAX: Final = 6
"""Wrong answers of each node to one call, at least, before the call is given up."""

UNKNOWN_PER_NODE_MAX: Final = 6
"""Answers of each node to one call that it does not know the block, before the call is given up. The block may be new."""

UNKNOWN_ROUNDS_MAX: Final = 3
"""Times in a row that a finalised head is asked for again because nodes do not know a block that they named."""

UNOFFERED_S: Final = 600.0
"""Seconds for which nodes are not asked again for something optional, such as proofs, that none of them offers."""

WAIT_LINE_S: Final = 60.0
"""Seconds between two lines about something that is waited for."""

STALL_S_MAX: Final = 120.0
"""Seconds without a new finalised block, or with a block that the node does not know, after which a spare takes over. Finality takes 12 to
30 seconds."""

PING_S: Final = 20.0
"""Seconds between pings of a connection, and that their answer may take."""

FRAMES_WAITING_MAX: Final = 4
"""Messages of a node that wait to be read, each of `ANSWER_BYTES_MAX` at most; the node waits with more."""

HEADS_WAITING_MAX: Final = 1_024
"""Finalised heads of a node that wait to be followed; of more, the oldest are forgotten and found again by their children."""

COMPARE_EVERY_BLOCKS: Final = 10
"""Blocks between two looks at the storage that a lane is compared with: those between which lanes emit headroom."""

HEAD_ASK_S: Final = 6.0
"""Seconds between two questions for the finalised head, of a node that has no notifications: the time of a block."""

OPERATIONS_MAX: Final = 16
"""Operations of `chainHead_v1` at once, each key of storage being one: the number that every node accepts."""

PINNED_MAX: Final = 32
"""Last finalised blocks that a node without `archive_v1` is to keep for this plugin: three minutes. Nodes keep 512 for all."""

HASHES_PER_EVENT_MAX: Final = 4_096
"""Hashes of blocks in one event of `chainHead_v1`."""

KEY_LISTS_MAX: Final = 4
"""Lists of keys that are kept while their pages are asked for, where a node lists all keys of an item at once."""

NODES_MAX: Final = 16
"""Nodes of one chain."""

URL_CHARACTERS_MAX: Final = 2_048
"""Characters of a node's address."""

ERROR_CHARACTERS_MAX: Final = 200
"""Characters of a node's error that are shown."""

# --- reading storage ---

KEYS_PER_PAGE: Final = 1_000
"""Keys that one call lists, which is the most that nodes allow."""

KEYS_MAX: Final = 1_000_000
"""Keys of one storage item; the largest chain has 20,000 channels."""

VALUES_PER_CALL: Final = 128
"""Values that one call reads, with its proof."""

# --- blocks ---

PAGE_MESSAGES_MAX: Final = 2**20
"""Messages of a page of upward messages, as in a lane's state."""

CANDIDATES_MAX: Final = 65_536
"""Candidates of a block, as in its record."""

METADATA_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a runtime's metadata, which are about 500,000. Decoded they take a hundred times as much memory."""

SPEC_VERSION_MAX: Final = 2**32 - 1
"""Version of a runtime."""

RUNTIMES_MAX: Final = 3
"""Decoded metadata kept in memory, each about 50 MB."""

RECENT_HASHES: Final = 64
"""Last blocks whose number a cursor has by hash. Relay parents were three blocks old at most until version 3 of descriptors."""

NUMBERS_MAX: Final = 4_096
"""Blocks whose number is kept by hash: in memory those that were followed; in the cursor, too, older relay parents, each asked for once.
Seven hours: since version 3 of descriptors, candidates may build on blocks of earlier sessions, which take one hour or four."""

WALK_BLOCKS_MAX: Final = 64
"""Blocks that are followed back from a finalised head by their parents. Longer gaps are filled by number, and each block by its parent."""

PENDING_MAX: Final = 65_536
"""Candidates that wait for availability."""

BLAMES_MAX: Final = 3
"""Times in a row that each node may contradict what was followed so far, before the lane stops."""

HEAD_POLL_S: Final = 1.0
"""Seconds after which a follower that waits for a finalised block looks whether it should stop."""

# --- records ---

BLOCKS_PER_COMMIT_MAX: Final = 64
"""Blocks whose records are committed at once while catching up."""

COMMIT_S_MAX: Final = 2.0
"""Seconds that a decoded block waits to be committed with others."""

CURSOR_BYTES_MAX: Final = 512 * 1024
"""Bytes of a cursor, compressed."""

SILENT_AFTER_S: Final = 300
"""Seconds without a new block after which a followed lane is unhealthy, unless the configuration says otherwise: 50 blocks."""

SILENT_AFTER_S_MAX: Final = 7 * 86_400
"""Greatest number of such seconds."""

QUEUE_PAGES_MAX: Final = 1_048_576
"""Pages of a downward queue that wait; each has one message, and the chain's length limit is below 33,554,432 / the longest message."""

PAGES_PER_READ: Final = 64
"""Pages of a downward queue that are read at once, from the last one back."""

# --- blocks that are kept ---

BLOCKS_PER_RANGE: Final = 512
"""Blocks of one file of an archive: 30 MB of a full Polkadot."""

RANGES_IN_MEMORY: Final = 3
"""Such files that are held in memory, unpacked, while blocks are read from them."""

KEPT_NUMBERS_MAX: Final = 8_192
"""Kept blocks whose number is known by hash: those in memory, and those that are read ahead."""

KEPT_COMPRESSION: Final = 1
"""Level of zlib: signatures and hashes are most of a block, and no level makes them smaller."""

FETCH_PROCESSES: Final = 1
"""Processes that fetch ranges, unless the command says otherwise."""

FETCH_PROCESSES_MAX: Final = 64
"""Greatest number of such processes."""


RECORD_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a record of facts, and of a disagreement: facts of a session change name all channels."""

WAITING_BLOCKS_MAX: Final = 2_000
"""Executed blocks of a lane that wait for the chain's facts; the oldest beyond that is not compared."""

ROUND_RECORDS_MAX: Final = 5_000
"""Records of lanes that are read before they are compared and the position is committed."""

DISAGREEMENTS_MAX: Final = 1_000
"""Disagreements that are reported of a block; the rest is counted."""

TEXT_CHARACTERS_MAX: Final = 1_000
"""Characters of one side of a disagreement."""

LINE_CHARACTERS_MAX: Final = 200
"""Characters of one side of a disagreement that are shown in a line."""

CAUSES_MAX: Final = 10_000
"""Paras of which it is remembered that a disagreement makes later ones."""
