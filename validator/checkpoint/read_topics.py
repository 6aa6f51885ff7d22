# SPDX-License-Identifier: Apache-2.0
"""Which topics a checkpoint has read, by their ids, kept in a file next to it.

A topic that is deleted and created again has the same name, and may have grown past the checkpoint's offsets, but its id is another.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from validator.checkpoint.files import has_checkpoint
from validator.checkpoint.second_look import Lack
from validator.errors import UserError, written_by_newer
from validator.kafka.topics import topic_ids
from validator.private import write_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from validator.checkpoint.second_look import SecondLook
    from validator.kafka.settings import KafkaTable

FILE: Final = "topics.json"
VERSION: Final = 1


def checked_ids(
    kafka: KafkaTable, prefix: str, topics: Iterable[str], checkpoint: Path, second: SecondLook
) -> dict[str, str]:
    """Return the ids to keep of the topics that a job reads. Raises `UserError` if one is another than the checkpoint has read.

    Not compared is a topic of which Kafka names no id, and one that is not in the file: a later version reads more topics, and an earlier
    one has kept no ids. Raises `UserError` and `Unavailable` as `SecondLook.refuse`.
    """
    names = [prefix + topic for topic in topics]
    if not has_checkpoint(checkpoint):
        return topic_ids(kafka, names)
    found = kept = kept_ids(checkpoint)

    def other(kafka: KafkaTable) -> Lack | None:
        nonlocal found
        found = topic_ids(kafka, names)
        for topic, found_id in sorted(found.items()):
            if kept.get(topic, found_id) != found_id:
                return Lack(
                    f"{topic} has id {found_id}, but {checkpoint} has read the one with id {kept[topic]}",
                    "it is another topic or another Kafka than the job read: check [kafka] bootstrap.servers; if the topics were created "
                    f"again, remove the checkpoint; if they are a copy with the same offsets, remove {checkpoint.with_name(FILE)}",
                )
        return None

    second.refuse("ids of topics", other)
    return kept | found


def keep_ids(checkpoint: Path, ids: Mapping[str, str]) -> None:
    """Write the ids of a checkpoint's topics, in place of those of an earlier start. Raises `OSError`."""
    path = checkpoint.with_name(FILE)
    if ids or path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, json.dumps({"version": VERSION, "ids": dict(ids)}, indent=1) + "\n")


def kept_ids(checkpoint: Path) -> dict[str, str]:
    """Return the ids that are kept, none without a file. Raises `UserError` for one that is damaged or newer."""
    path = checkpoint.with_name(FILE)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if (version := values["version"]) != VERSION:
            raise written_by_newer(path, VERSION, version)
        return {str(topic): str(each) for topic, each in values["ids"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path}: expected ids of topics: {error}: remove it if the topics were not created again"
        ) from error
