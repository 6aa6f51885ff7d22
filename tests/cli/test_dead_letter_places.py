# SPDX-License-Identifier: Apache-2.0
"""`validator dead-letters show` names what is nearest to a place that holds no dead letter, such as the end of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.follower import invoke, lines
from tests.sending import in_transactions
from validator.codec.encode import encode_dead_letter
from validator.config.toml import to_toml
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.kafka.topics import create_topics

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "letter-places."


@pytest.mark.broker
def test_end_of_a_transaction_is_no_dead_letter_and_the_nearest_ones_are_named(
    kafka: dict[str, object], tmp_path: Path
) -> None:
    create_topics(kafka, prefix=PREFIX)
    path = tmp_path / "validator.toml"
    path.write_text(to_toml({"kafka": kafka, "topics": {"prefix": PREFIX}}))

    def said(place: str) -> str:
        result = invoke("dead-letters", "show", place, f"--config={path}")
        assert result.exit_code == 2
        return result.stderr.removeprefix(f"validator: no dead letter at {place}: ").strip()

    assert said("0/0") == f"there is none near it in partition 0 of {PREFIX}dead-letters"
    source = Source(f"{PREFIX}candidates", 0, 0)
    letter = encode_dead_letter(DeadLetter("polkadot", DeadReason.UNDECODABLE, "broken", source, b"raw", None, None))
    in_transactions(kafka, [(PREFIX + letter.topic, letter.key, letter.value)] * 2)
    listed = lines(invoke("dead-letters", "list", "--json", f"--config={path}").stdout)
    assert [row["place"] for row in listed] == ["0/0", "0/2"]
    assert said("0/1") == "the nearest are 0/0 and 0/2"
    assert said("0/3") == said("0/99") == "the nearest is 0/2"
    assert said("7/0") == f"{PREFIX}dead-letters has 1 partition"
