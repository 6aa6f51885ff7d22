# SPDX-License-Identifier: Apache-2.0
"""`validator audit --records` and `what-if` on files of which one record is missing, changed or too many."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import LANE, invoke, lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BLOCKS = 24
AT = 12
"""The block that a test damages."""
LIMIT = "hrmp_max_message_num_per_candidate"

Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audited") / "chain"
    result = invoke("simulate", f"--blocks={BLOCKS}", "--seed=5", f"--lane={LANE}", f"--out={out}")
    assert result.exit_code == 0, result.output
    for topic in ("verdicts", "dispatches"):
        (out / f"expected-{topic}.jsonl").rename(out / f"{topic}.jsonl")
    return out


@pytest.fixture
def folder(simulated: Path, tmp_path: Path) -> Path:
    return shutil.copytree(simulated, tmp_path / "chain")


def edit(folder: Path, topic: str, change: Callable[[Records], Any]) -> None:
    path = folder / f"{topic}.jsonl"
    records = lines(path.read_text("utf-8"))
    change(records)
    path.write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")


def place(records: Records, block: int = AT, **members: object) -> int:
    wanted = {"block": block, **members}.items()
    return next(
        at for at, each in enumerate(records) if wanted <= {(k, v) for k, v in each.items() if k in dict(wanted)}
    )


def audited(folder: Path, exit_code: int = 1) -> tuple[Records, dict[str, Any], str]:
    """Return the findings that are faults, the summary, and what people read."""
    arguments = ("audit", f"--config={folder / 'validator.toml'}", f"--records={folder}")
    result = invoke(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    *findings, summary = lines(result.stdout)
    assert summary["ok"] == (exit_code == 0)
    return [each for each in findings if each["fault"]], summary, invoke(*arguments).stdout


def asked(folder: Path, *arguments: str) -> Any:
    return invoke(
        "what-if", f"--own={folder / 'validator.toml'}", f"--records={folder}", f"--set={LIMIT}=1", *arguments
    )


def test_whole_history_is_compared_with_what_was_emitted(folder: Path) -> None:
    faults, summary, printed = audited(folder, 0)
    assert faults == []
    assert (summary["stopped"], summary["unused"], summary["refused"]) == (None, 0, 0)
    assert (summary["checks"]["verdicts"], summary["checks"]["dispatches"]) == (BLOCKS, BLOCKS)
    assert summary["skipped"]["receipts"] == "the folder has no receipts.jsonl to compare with"
    assert "no fault" in printed
    assert asked(folder).exit_code == 0


def test_missing_candidate_stops_the_history(folder: Path) -> None:
    edit(folder, "candidates", lambda records: records.pop(place(records)))
    (folder / "verdicts.jsonl").unlink()
    (folder / "dispatches.jsonl").unlink()
    (fault,), summary, printed = audited(folder)
    announced = lines((folder / "blocks.jsonl").read_text("utf-8"))[AT - 1]["candidates"]
    words = f"stopped after block {AT - 1}: waiting for 1 of {announced} candidates of block {AT}; {summary['unused']} records are unused"
    assert (fault["check"], fault["block"], fault["detail"]) == ("history", AT - 1, words)
    assert (summary["stopped"], summary["last_block"]) == (words, AT - 1)
    assert summary["unused"] > BLOCKS - AT
    assert f"  {words}\n" in printed
    what_if = asked(folder)
    assert what_if.exit_code == 1
    assert words in what_if.stderr
    assert lines(asked(folder, "--json").stdout)[-1]["stopped"] == words
    assert asked(folder, f"--to-block={AT - 1}").exit_code == 0, "what was asked for is complete"


@pytest.mark.parametrize("parent", [None, 3])
def test_missing_or_moved_block_record_stops_the_history(folder: Path, parent: int | None) -> None:
    def change(records: Records) -> None:
        if parent is None:
            del records[AT - 1]
        else:
            records[AT - 1]["parent_number"] = parent

    edit(folder, "blocks", change)
    faults, summary, _ = audited(folder)
    (stop,) = [each for each in faults if each["check"] == "history"]
    assert f"stopped after block {AT - 1}: waiting for the record of the block after {AT - 1}" in stop["detail"]
    assert f"of blocks {AT} to {BLOCKS}" in stop["detail"]
    assert "verdicts have later blocks" in stop["detail"]
    refused = [(each["subject"], each["detail"]) for each in faults if each["check"] == "inputs"]
    expected = (f"blocks.jsonl, line {AT}", f"fork: block {AT} names parent 3, as block 4 does")
    assert refused == ([] if parent is None else [expected])
    assert summary["refused"] == len(refused)


def test_surplus_and_contradicting_records_are_named(folder: Path) -> None:
    edit(folder, "blocks", lambda records: records[AT - 1].update(candidates=records[AT - 1]["candidates"] - 1))

    def again(records: Records) -> None:
        first = records[place(records, block=2)]
        records += [{**first, "hrmp_watermark": first["hrmp_watermark"] + 1}, first]

    edit(folder, "candidates", again)
    faults, summary, printed = audited(folder)
    surplus, conflict = [each for each in faults if each["check"] == "inputs"][::-1]
    if surplus["block"] != AT:
        surplus, conflict = conflict, surplus
    assert surplus["detail"].startswith("index_out_of_range: candidate ")
    assert f"of block {AT}: the block record announces" in surplus["detail"]
    assert (conflict["block"], conflict["subject"]) == (
        2,
        f"candidates.jsonl, line {len(lines((folder / 'candidates.jsonl').read_text('utf-8'))) - 1}",
    )
    assert conflict["detail"].startswith("conflict: candidate 0 of block 2 is taken by")
    assert summary["refused"] == 2, "the same record twice is a duplicate"
    assert "records that no block takes: 2" in printed
    what_if = asked(folder)
    assert what_if.exit_code == 1
    assert "conflict: candidate 0 of block 2 is taken by" in what_if.stderr


def test_emitted_verdict_that_differs_says_why(folder: Path) -> None:
    def forge(records: Records) -> None:
        verdict = records[place(records, kind="candidate", ok=False)]
        verdict.pop("error")
        verdict["ok"] = True

    edit(folder, "verdicts", forge)
    (fault,), _, _ = audited(folder)
    assert (fault["check"], fault["block"]) == ("verdicts", AT)
    assert ": ok True, executed again False (" in fault["detail"]
    assert "/" in fault["detail"].split("False (")[1]


def test_emitted_records_that_end_early_are_a_fault(folder: Path) -> None:
    edit(folder, "verdicts", lambda records: records.__delitem__(slice(place(records), None)))
    (fault,), summary, _ = audited(folder)
    assert fault["detail"] == f"they end before block {AT}, so nothing was compared from there on"
    assert summary["checks"]["verdicts"] == AT - 1


def test_audit_without_verdicts_says_that_none_was_compared(folder: Path) -> None:
    (folder / "verdicts.jsonl").unlink()
    found, _, printed = audited(folder, 0)
    assert found == []
    assert "no fault, but no emitted verdict was compared" in printed


@pytest.mark.parametrize("is_whole", [False, True])
def test_verdicts_that_are_there_again_behind_the_last_block_are_a_fault(folder: Path, is_whole: bool) -> None:
    """The first one contradicts its original."""

    def again(records: Records) -> None:
        records += [dict(each) for each in records] if is_whole else [{**records[4], "ok": not records[4]["ok"]}]

    edit(folder, "verdicts", again)
    (fault,), _, printed = audited(folder)
    assert fault["check"] == "verdicts"
    assert f"behind block {BLOCKS}" in fault["detail"]
    assert "no fault" not in printed


def test_other_limits_than_the_job_s_are_said_first(folder: Path) -> None:
    edit(folder, "verdicts", lambda records: [each.update(runtime_digest="0x" + "12" * 16) for each in records])
    _, summary, printed = audited(folder, 0)
    assert summary["notes"] > 0
    assert printed.splitlines()[1].startswith(
        f"  the records were made with another runtime (digest {'12' * 16} in block 1, "
    )
    assert "its program, limits or plugins differ" in printed.splitlines()[1]


def test_history_whose_last_block_is_incomplete_is_said_to_be(folder: Path) -> None:
    """A file ends somewhere, unlike a topic: records of its last block that were not used are no less unused."""
    edit(folder, "candidates", lambda records: records.pop(place(records, block=BLOCKS)))
    faults, _, _ = audited(folder)
    assert any(each["check"] == "history" and f"candidates of block {BLOCKS}" in each["detail"] for each in faults)


def test_document_that_is_no_record_is_refused(folder: Path) -> None:
    (folder / "receipts.jsonl").write_text('{"lane": "polkadot"}\n', "utf-8")
    result = invoke("audit", f"--config={folder / 'validator.toml'}", f"--records={folder}")
    assert result.exit_code == 2
    assert "receipts.jsonl, line 1" in result.stderr
    assert "block" in result.stderr
