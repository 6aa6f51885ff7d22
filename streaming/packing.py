# SPDX-License-Identifier: Apache-2.0
"""What the lane stage passes to the sink stage, as bytes. It imports no pandas, which would slow the start of the sink's worker."""

from __future__ import annotations

import marshal

from validator.codec.encode import BlockOutput, OutputRecord
from validator.lanes.marker import Consumed


def pack_outputs(outputs: list[BlockOutput]) -> bytes:
    """Return a lane's outputs as bytes for the next stage of the same batch. `validator.codec.inflight` explains the use of marshal."""
    return marshal.dumps([(block, [tuple(record) for record in records]) for block, records in outputs])


def unpack_outputs(packed: bytes) -> list[BlockOutput]:
    """Reverse `pack_outputs`."""
    plain = marshal.loads(packed)  # noqa: S302 - written by the previous stage, see `pack_outputs`
    return [BlockOutput(block, list(map(OutputRecord._make, records))) for block, records in plain]


def pack_consumed(consumed: Consumed) -> bytes:
    """Return offsets as bytes for the next stage."""
    return marshal.dumps(list(consumed.items()))


def unpack_consumed(packed: bytes) -> dict[tuple[str, int], int]:
    """Reverse `pack_consumed`."""
    return dict(marshal.loads(packed))  # noqa: S302 - as above
