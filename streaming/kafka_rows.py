# SPDX-License-Identifier: Apache-2.0
"""What Python workers get of Kafka's rows: a producer's batch that compresses well may hold keys and values of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.options import KEY_BYTES_MAX, WHOLE_BYTES_MAX
from validator.core.limits import DEAD_LETTER_END_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ("topic", "partition", "offset")


def with_ends(rows: DataFrame) -> DataFrame:
    """Return Kafka's rows with their values' sizes; of a value above `WHOLE_BYTES_MAX` only the ends stay, as its dead letter has them."""
    ends = ", ".join(f"substring(value, {place}, {DEAD_LETTER_END_BYTES})" for place in (1, -DEAD_LETTER_END_BYTES))
    whole = f"CASE WHEN length(value) > {WHOLE_BYTES_MAX} THEN concat({ends}) ELSE value END AS value"
    return rows.selectExpr(*_PLACE, _key(), whole, "length(value) AS size")


def cut(rows: DataFrame) -> DataFrame:
    """Return Kafka's rows; of a value above `WHOLE_BYTES_MAX` one byte more than that stays, so that it is still too large."""
    begin = f"substring(value, 1, {WHOLE_BYTES_MAX + 1})"
    return rows.selectExpr(
        *_PLACE, _key(), f"CASE WHEN length(value) > {WHOLE_BYTES_MAX} THEN {begin} ELSE value END AS value"
    )


def _key() -> str:
    return f"substring(key, 1, {KEY_BYTES_MAX}) AS key"
