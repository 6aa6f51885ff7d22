# SPDX-License-Identifier: Apache-2.0
"""A state that Spark cannot read ends the job with a remedy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException

from streaming import run
from streaming.reasons import damaged_state
from streaming.run import Outages, run_queries
from tests.unit.streaming.queries import Log, Query
from validator.errors import UserError
from validator.waiting import Patience, Pauses

UNREADABLE = """\
[STREAM_FAILED] Query [id = fb7b, runId = 5b01] terminated with exception: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred \
during loading state.  SQLSTATE: 58030 SQLSTATE: XXKST: org.rocksdb.RocksDBException: block checksum mismatch: stored = 438570863, \
computed = 2156031897, type = 4  in /v/tmp/StateStoreId(opId=0,partId=3,name=default)-d8b7/workingDir-62de/000009.sst offset 59876 size 7"""


def test_damaged_state_is_read_again_once_and_then_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Damaged(Query):
        id = runId = "query"  # noqa: N815 - as Spark names it

        def awaitTermination(self, _: float) -> bool:  # noqa: N802
            raise StreamingQueryException(UNREADABLE)

    monkeypatch.setattr(run, "RESTART", Pauses(0.0, 0.0))
    log = Log()
    outages = Outages(Patience(0.0), SimpleNamespace(requested=False), log)  # type: ignore[arg-type]
    with pytest.raises(UserError) as refused:
        run_queries(lambda: Damaged([]), outages, lambda _: None)  # type: ignore[arg-type, return-value]
    assert [event for event, _ in log.events] == ["ready", "restarting"]
    line = str(refused.value)
    assert line.startswith(
        "Spark cannot read state/0/3 of the checkpoint: org.rocksdb.RocksDBException: block checksum mismatch: stored = 438570863, "
    )
    assert line.endswith(
        ": restore the checkpoint from a backup, or remove it and start with --rebuild (docs/upgrade.md)"
    )


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            "[CANNOT_LOAD_STATE_STORE]\nCaused by: java.io.FileNotFoundException: File file:/v/SSTs/9.sst does not exist\nopId=1, partId=0",
            "Spark cannot read state/1/0 of the checkpoint: java.io.FileNotFoundException: File file:/v/SSTs/9.sst does not exist",
        ),
        (
            "[CANNOT_LOAD_STATE_STORE.X] y\nCaused by: org.a.B: first\nCaused by: org.a.C: last",
            "Spark cannot read the checkpoint's state: org.a.C: last",
        ),
        (
            "y [CANNOT_LOAD_STATE_STORE.X] why",
            "Spark cannot read the checkpoint's state: y [CANNOT_LOAD_STATE_STORE.X] why",
        ),
        ("org.rocksdb.RocksDBException: While open a file: No space left on device", None),
        ("java.io.FileNotFoundException: something else", None),
    ],
)
def test_what_cannot_be_read_of_the_state(report: str, line: str | None) -> None:
    assert damaged_state(report) == line
