# SPDX-License-Identifier: Apache-2.0
"""`validator lanes` and `validator lanes import`, and what lanes say of themselves."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from validator_relay_chain.oracle.records import own_topics

from tests.cli.follower import Follower, follower, invoke, lines
from tests.codecs import encoded
from tests.sending import send
from validator import __version__
from validator.codec.orders import encode_order
from validator.core.rules import pages
from validator.job import lag
from validator.job.start_check import Look
from validator.kafka.process import start_time
from validator.kafka.topics import create_topics
from validator.lanes.auditing import AuditFault, fault_record
from validator.lanes.configured import (
    imported_state_path,
    job_directory,
    lane_definition,
    read_state_file,
    rules_runtime,
)
from validator.lanes.kept_start import NOTHING, StartedEpoch, start_of
from validator.lanes.marker import Marker
from validator.lanes.parked import Fault, Parked, Span, running
from validator.topics import TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    from validator.config import Config


@pytest.fixture
def chain(tmp_path: Path, kafka: dict[str, object]) -> Follower:
    return follower(tmp_path, kafka, f"lanes-{tmp_path.name}.", blocks=4)


def test_lane_without_output_is_listed(chain: Follower) -> None:
    assert lines(invoke("lanes", "--json", chain.option()).stdout) == [
        {
            "lane": "polkadot",
            "configured": True,
            "first_block": 1,
            "plugins": [f"router@{__version__}"],
            "plugins_configured": [f"router@{__version__}"],
            "plugins_differ": False,
            "next_start_refuses": None,
            "lag": 0,
            "lag_blocks": 0,
            "lag_complete": True,
            "unread": None,
            "open_transactions": [],
            "parked": None,
            "audit": None,
            "feed": None,
            "audit_share": 0.0,
            "transports": [],
        }
    ]
    assert invoke("lanes", chain.option()).stdout == "polkadot  no records yet; starts with block 1\n"


def test_lanes_shows_what_a_transport_says_of_a_lane(chain: Follower) -> None:
    agreement = next(each for each in own_topics() if each.line is not None)
    kafka, prefix = chain.config.kafka, chain.config.topics.prefix
    plain = chain.config_path.read_text(encoding="utf-8")

    def said(table: str) -> list[str]:
        chain.config_path.write_text(f"{plain}\n[transports.relay-chain.chains.polkadot]\n{table}\n", encoding="utf-8")
        (row,) = lines(invoke("lanes", "--json", chain.option()).stdout)
        found: list[str] = row["transports"]
        return found

    source = f'rpc = ["ws://127.0.0.1:1"]\ngenesis = "0x{"00" * 32}"\nfolder = "polkadot"'
    assert said(source) == []  # its topic does not exist yet
    create_topics(kafka, prefix=prefix, topics=[agreement.topic])
    counted = dict.fromkeys(("blocks", "candidates", "inclusions", "heads", "counters", "channels", "skipped"), 1)
    form = agreement.form.format
    values = [
        form.encode({"lane": "polkadot", "block": block, "disagreements": {"ours": 2}, "last_ours": 4, **counted})
        for block in (5, 6)
    ]
    send(kafka, prefix, [(agreement.topic.name, b"polkadot", value) for value in (*values, b"no record")])
    line = "compared with the chain up to block 6: 1 candidates, 1 inclusions, 1 heads, 1 counters, 1 channels; disagreements: 2 ours"
    assert said(source) == [f"{line}, the last of ours in block 4; not compared: 1"]
    assert line in invoke("lanes", chain.option()).stdout
    assert said("rpc = 7") == []  # its own command says what is wrong


def test_lanes_shows_executed_block_and_what_is_missing(chain: Follower) -> None:
    missing = next(
        place for place, (kind, record) in enumerate(chain.records) if kind == "candidates" and record["block"] == 4
    )
    chain.judge(each for place, each in enumerate(chain.records) if place != missing)
    (status,) = lines(invoke("lanes", "--json", chain.option()).stdout)
    announced = chain.records[[each[0] for each in chain.records].index("blocks")][1]["candidates"]
    assert status["executed_block"] == 3
    assert status["last_receipt"]["block"] == 3
    assert status["waiting_for"] == f"waiting for 1 of {announced} candidates of block 4"
    assert status["consumed"] == len(chain.records) - 1
    printed = invoke("lanes", chain.option()).stdout.splitlines()
    assert printed[0] == f"polkadot  executed block 3; {status['waiting_for']}"
    assert printed[1].startswith(f"          consumed {status['consumed']} = ")
    assert printed[2].startswith("          in memory: ")
    assert printed[3].startswith("          last receipt: block 3 of session 0, ")
    # blocks 4 to 7 are emitted, and their batch is not complete
    parked = Parked(Fault.WAITING, "too much waits", 7).record("polkadot").records
    send(chain.config.kafka, chain.config.topics.prefix, [(each.topic, each.key, each.value) for each in parked])
    printed = invoke("lanes", chain.option()).stdout.splitlines()
    assert printed[0] == "polkadot  PARKED since block 7 (waiting): too much waits"
    assert printed[3] == "          executed block 7; waiting for the inputs that it holds"


def mark(chain: Follower, lane: str, block: int, **offsets: int) -> None:
    prefix = chain.config.topics.prefix
    consumed = {(f"{prefix}{topic.replace('_', '-')}", 0): offset for topic, offset in offsets.items()}
    record = Marker(block, consumed).encode(lane)
    send(chain.config.kafka, prefix, [(record.topic, record.key, record.value)])


def test_lanes_shows_lag(chain: Follower, kafka: dict[str, Any]) -> None:
    chain.judge(chain.records)
    assert lines(invoke("lanes", "--json", chain.option()).stdout)[0]["lag"] == 0
    send(kafka, chain.config.topics.prefix, [("candidates", b"polkadot", b"%d" % offset) for offset in range(7)])
    send(kafka, chain.config.topics.prefix, [("blocks", b"polkadot", b"%d" % offset) for offset in range(3)])
    mark(chain, "polkadot", 3, candidates=1)
    mark(chain, "polkadot", 4, candidates=5, blocks=2)
    (status,) = lines(invoke("lanes", "--json", chain.option()).stdout)
    assert (status["lag"], status["lag_blocks"], status["lag_complete"]) == (3, 1, True)
    assert invoke("lanes", chain.option()).stdout.splitlines()[1].endswith("; lag 3 records, 1 block")
    send(kafka, chain.config.topics.prefix, [("blocks", b"polkadot", encode_order("polkadot", frozenset()))])
    (status,) = lines(invoke("lanes", "--json", chain.option()).stdout)
    assert (status["lag"], status["lag_blocks"]) == (4, 1), "an order is a record, and no block"


def test_lag_of_a_lane_that_shares_its_partition_is_its_own(chain: Follower, kafka: dict[str, Any]) -> None:
    """The way to alert: an idle lane next to a busy one is not behind, and the busy one is."""
    chain.config_path.write_text(chain.config_path.read_text(encoding="utf-8") + "\n[chains.idle]\n", encoding="utf-8")
    rows = [("idle", 2), ("polkadot", 500), ("idle", 0)]
    prefix = chain.config.topics.prefix
    send(kafka, prefix, [("candidates", lane.encode(), b"x") for lane, count in rows for _ in range(count)])
    mark(chain, "idle", 2, candidates=2)
    mark(chain, "polkadot", 9, candidates=490)
    assert lag_of(chain) == {"idle": 0, "polkadot": 12}
    assert invoke("lanes", "--lag-max=12", chain.option()).exit_code == 0
    assert invoke("lanes", "--lag-max=11", chain.option()).exit_code == 1
    mark(chain, "polkadot", 9, candidates=502)
    assert lag_of(chain) == {"idle": 0, "polkadot": 0}
    assert invoke("lanes", "--lag-max=0", "--json", chain.option()).exit_code == 0
    send(kafka, prefix, [("candidates", b"idle", b"x")])
    assert lag_of(chain) == {"idle": 1, "polkadot": 0}
    assert invoke("lanes", "--lag-max=0", chain.option()).exit_code == 1


def lag_of(chain: Follower) -> dict[str, int]:
    return {row["lane"]: row["lag"] for row in lines(invoke("lanes", "--json", chain.option()).stdout)}


def test_complete_batch_of_the_job_shortens_what_is_counted(
    chain: Follower, kafka: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle lane's marker stays where it is, but what a batch has consumed is done for every lane."""
    monkeypatch.setattr(lag, "LAG_RECORDS_MAX", 10)
    prefix = chain.config.topics.prefix
    send(kafka, prefix, [("candidates", b"busy", b"x")] * 30)
    mark(chain, "polkadot", 2, candidates=1)
    (row,) = lines(invoke("lanes", "--json", chain.option()).stdout)
    assert (row["lag"], row["lag_complete"]) == (0, False)
    send(kafka, prefix, [("candidates", b"polkadot", b"x")] * 2)
    for folder in ("commits", "offsets"):
        path = job_directory(chain.config) / "checkpoint" / folder / "4"
        path.parent.mkdir(parents=True)
        path.write_text(f"v1\n{{}}\n{json.dumps({f'{prefix}candidates': {'0': 30}})}")
    (row,) = lines(invoke("lanes", "--json", chain.option()).stdout)
    assert (row["lag"], row["lag_complete"]) == (2, True)


def test_lag_of_a_parked_lane_is_what_it_holds(chain: Follower, kafka: dict[str, Any]) -> None:
    prefix = chain.config.topics.prefix
    send(kafka, prefix, [("candidates", b"polkadot", b"x")] * 6)
    mark(chain, "polkadot", 2, candidates=2)
    for folder in ("commits", "offsets"):
        path = job_directory(chain.config) / "checkpoint" / folder / "4"
        path.parent.mkdir(parents=True)
        path.write_text(f"v1\n{{}}\n{json.dumps({f'{prefix}candidates': {'0': 6}})}")
    assert lag_of(chain) == {"polkadot": 0}
    held = {(f"{prefix}candidates", 0): Span(3, 5)}
    for parked, lag_records in (
        (Parked(Fault.MEMORY, "why", 2, held), 3),
        (Parked(Fault.MEMORY, "why", 2), 4),  # what it does not name has arrived since
        (Parked(Fault.STATE, "why", None, {(f"{prefix}candidates", 0): Span(0, 5)}, resuming=True), 6),
    ):
        send(kafka, prefix, [(each.topic, each.key, each.value) for each in parked.record("polkadot").records])
        assert lag_of(chain) == {"polkadot": lag_records}
    send(kafka, prefix, [(each.topic, each.key, each.value) for each in running("polkadot").records])
    assert lag_of(chain) == {"polkadot": 0}


def test_plugins_are_those_of_the_job(chain: Follower) -> None:
    """The file may have changed since the job's start, and this program, too."""
    config, router = chain.config, f"router@{__version__}"
    definitions = {"polkadot": lane_definition(config, "polkadot")}
    start = start_of(config, definitions["polkadot"])

    def shown(*epochs: StartedEpoch) -> tuple[dict[str, Any], list[str]]:
        started = {"polkadot": replace(start, epochs=epochs or start.epochs)}
        Look(job_directory(config) / "lanes", started, {}, NOTHING).keep()
        (row,) = lines(invoke("lanes", "--json", chain.option()).stdout)
        assert row["plugins_configured"] == [router]
        return row, [line.strip() for line in invoke("lanes", chain.option()).stdout.splitlines()]

    chain.judge(chain.records)
    row, printed = shown()
    assert (row["plugins"], row["plugins_differ"]) == ([router], False)
    assert printed[-1] == f"plugins of the next block: {router}"

    later = StartedEpoch(5, "22", ("router@0.0.1", "remark@0.0.2"))
    row, printed = shown(StartedEpoch(0, "11", ("router@0.0.1",)), later, StartedEpoch(6, "33", ("another@1",)))
    assert row["executed_block"] == 4
    assert (row["plugins"], row["plugins_differ"]) == (["router@0.0.1", "remark@0.0.2"], True)
    differs = "the configuration differs from what the job started with; after its next start:"
    assert printed[-2:] == ["plugins of the next block: router@0.0.1, remark@0.0.2", f"{differs} {router}"]
    _, printed = shown(StartedEpoch(0, "11", (router,)))
    assert printed[-1] == f"{differs} the same, with another configuration"


def test_unconfigured_lane_is_marked(chain: Follower) -> None:
    chain.judge(chain.records)
    lane, chains = "kusama", chain.config_path.read_text(encoding="utf-8").replace("chains.polkadot", "chains.kusama")
    chain.config_path.write_text(chains, encoding="utf-8")
    rows = lines(invoke("lanes", "--json", chain.option()).stdout)
    assert [(row["lane"], row["configured"]) for row in rows] == [(lane, True), ("polkadot", False)]


# --- import ---

MESSAGE = {"sent_at": 90, "data": "0a0b"}
STATE: dict[str, Any] = {
    "valid_paras": [{"para_id": 1, "kind": "parachain"}, {"para_id": 2, "kind": "parathread"}, 3],
    "channels": {
        "1->2": {"limit_used_places": 4, "limit_used_bytes": 64, "limit_message_size": 16, "mqc_head": "ab" * 32}
    },
    "contents": {"1->2": [MESSAGE]},
    "digests": {"2": [[90, [1]]]},
    "watermarks": {"2": 80},
    "ump_queues": {"3": ["00ff"]},
    "dmq": {"3": [{"sent_at": 91, "msg": "cc"}]},
    "dmq_heads": {"3": "cd" * 32},
    # in order of the requests, which is not ascending by channel
    "open_requests": {
        name: {
            "confirmed": False,
            "age": 0,
            "sender_deposit": 0,
            "limit_used_places": 1,
            "limit_used_bytes": 8,
            "limit_message_size": 8,
        }
        for name in ("3->1", "1->3")
    },
    "close_request_set": ["1->2"],
}


def table(directory: Path, **chain: Any) -> Path:
    path = directory / "validator.toml"
    extra = "".join(f"{name} = {json.dumps(value)}\n" for name, value in chain.items())
    path.write_text(f'[job]\ndirectory = "{directory / "job"}"\n[chains.polkadot]\nbalances = "unlimited"\n{extra}')
    return path


def imported(config: Config, directory: Path) -> Path:
    path = imported_state_path(config, "polkadot")
    assert path.is_relative_to(directory)
    return path


@pytest.fixture
def setup(tmp_path: Path) -> tuple[Path, Path]:
    state = tmp_path / "STATE.json"
    state.write_text(json.dumps({"first_block": 100, "state": STATE}))
    return table(tmp_path), state


def test_lane_starts_from_the_imported_state(setup: tuple[Path, Path], tmp_path: Path) -> None:
    from validator.config import load_config

    config_path, state = setup
    result = invoke("lanes", "import", str(state), "--lane=polkadot", "--json", f"--config={config_path}")
    assert result.exit_code == 0, result.output
    config = load_config(config_path)
    kept = imported(config, tmp_path)
    assert json.loads(result.stdout) == {
        "lane": "polkadot",
        "first_block": 100,
        "paras": 3,
        "channels": 1,
        "file": str(kept),
    }
    chain = config.chains["polkadot"]
    _, wanted = read_state_file(state, chain, "polkadot", rules_runtime(chain, "polkadot"))
    definition = lane_definition(config, "polkadot")
    assert definition.first_block == 100
    assert definition.genesis == tuple(pages(wanted))
    assert json.loads(kept.read_text())["state"]["valid_paras"][1] == {"para_id": 2, "kind": "parathread"}


@pytest.mark.parametrize(("document", "option", "first_block"), [(STATE, (), 7), (STATE, ("--first-block=55",), 55)])
def test_first_block_comes_from_chain_or_option(
    tmp_path: Path, document: dict[str, Any], option: tuple[str, ...], first_block: int
) -> None:
    state = tmp_path / "STATE.json"
    state.write_text(json.dumps(document))
    config_path = table(tmp_path, first_block=7)
    result = invoke("lanes", "import", str(state), "--lane=polkadot", *option, "--json", f"--config={config_path}")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["first_block"] == first_block


def test_option_overrides_the_file(setup: tuple[Path, Path]) -> None:
    config_path, state = setup
    result = invoke(
        "lanes", "import", str(state), "--lane=polkadot", "--first-block=200", "--json", f"--config={config_path}"
    )
    assert json.loads(result.stdout)["first_block"] == 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"watermarks": {"2": "x"}}, "watermarks"),
        ({"digests": {"2": [[90, [3]]]}}, "the rules cannot reach this state"),
        ({"open_request_count": {"1": 9}}, "open_request_count"),
        ({"chanels": {}}, "chanels"),
    ],
)
def test_impossible_state_is_one_error_line(
    setup: tuple[Path, Path], tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    config_path, state = setup
    state.write_text(json.dumps({"first_block": 100, "state": {**STATE, **change}}))
    result = invoke("lanes", "import", str(state), "--lane=polkadot", f"--config={config_path}")
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "job" / "lanes" / "polkadot.json").exists()


def test_unconfigured_lane_gets_a_suggestion(setup: tuple[Path, Path]) -> None:
    config_path, state = setup
    result = invoke("lanes", "import", str(state), "--lane=polkadto", f"--config={config_path}")
    assert result.exit_code == 2
    assert result.stderr == "validator: --lane: no chain 'polkadto' is configured; did you mean 'polkadot'?\n"


def test_import_keeps_a_state_named_by_the_chain(setup: tuple[Path, Path], tmp_path: Path) -> None:
    _, state = setup
    result = invoke("lanes", "import", str(state), "--lane=polkadot", f"--config={table(tmp_path, state='other.json')}")
    assert result.exit_code == 2
    assert "chains.polkadot.state already names" in result.stderr


def test_import_refuses_lanes_of_a_running_job(setup: tuple[Path, Path], tmp_path: Path) -> None:
    config_path, state = setup
    (tmp_path / "job").mkdir()
    pid, started = os.getpid(), start_time(os.getpid())
    record = {"pid": pid, "started": started, "starter": pid, "starter_started": started}
    (tmp_path / "job" / "job.json").write_text(json.dumps(record))
    result = invoke("lanes", "import", str(state), "--lane=polkadot", f"--config={config_path}")
    assert result.exit_code == 2
    assert f"a job is using {tmp_path / 'job'} (process {os.getpid()})" in result.stderr


def test_import_refuses_a_lane_with_a_checkpoint(chain: Follower, tmp_path: Path) -> None:
    state = tmp_path / "STATE.json"
    state.write_text(json.dumps({"valid_paras": [2000]}))
    checkpoint = tmp_path / "job" / "checkpoint"
    checkpoint.mkdir(parents=True)
    # another lane's checkpoint: this lane may still start from any block
    assert invoke("lanes", "import", str(state), "--lane=polkadot", "--first-block=50", chain.option()).exit_code == 0
    assert invoke("lanes", chain.option()).stdout == "polkadot  no records yet; starts with block 50\n"
    chain.judge(chain.records)
    result = invoke("lanes", "import", str(state), "--lane=polkadot", chain.option())
    assert result.exit_code == 2
    assert result.stderr.startswith(
        f"validator: lane polkadot: it has already executed block 4, with its state in {checkpoint}: "
    )


SOURCE = f'rpc = ["ws://127.0.0.1:1"]\ngenesis = "0x{"00" * 32}"\nfolder = "polkadot"'


def test_lane_that_a_transport_feeds_shows_the_age_of_its_newest_block(
    chain: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = chain.config_path.read_text(encoding="utf-8")

    def feed(last: str = "") -> dict[str, Any] | None:
        table = (
            f"[transports.relay-chain]\nsilent_after = 7200\n[transports.relay-chain.chains.polkadot]\n{SOURCE}\n{last}"
        )
        chain.config_path.write_text(f"{plain}\n{table}\n", encoding="utf-8")
        (row,) = lines(invoke("lanes", "--json", chain.option()).stdout)
        found: dict[str, Any] | None = row["feed"]
        return found

    def printed() -> str:
        return invoke("lanes", chain.option()).stdout

    nothing = {"transport": "relay-chain", "silent_after_s": 7200, "newest_block": None, "age_s": None, "silent": True}
    assert feed() == nothing
    assert "SILENT: no block among the last records, expected one within 2 h: transport relay-chain waits" in printed()
    blocks = [(kind, b"polkadot", encoded(kind, record)) for kind, record in chain.records if kind == "blocks"]
    send(chain.config.kafka, chain.config.topics.prefix, blocks)
    found = feed()
    assert found is not None
    assert (found["newest_block"], found["silent"]) == (len(blocks), False)
    assert 0 <= found["age_s"] < 7200
    assert f"newest block {len(blocks)} arrived " in printed()
    monkeypatch.setattr("validator.cli.lanes.time", SimpleNamespace(time=lambda: time.time() + 8_000))
    why = "transport relay-chain waits, has ended, or was never started"
    assert f"SILENT: no new block for 2 h, expected one within 2 h: {why}" in printed()
    assert feed("to_block = 9") is None, "a lane that ends may be silent"


def test_lanes_shows_that_the_audit_is_on_and_its_faults_have_an_exit_code(chain: Follower) -> None:
    chain.judge(chain.records)
    plain = chain.config_path.read_text(encoding="utf-8")
    assert "audit" not in invoke("lanes", chain.option()).stdout
    chain.config_path.write_text(f"{plain}\n[audit]\nshare = 0.125\n", encoding="utf-8")
    sound = invoke("lanes", "--audit-since=0", chain.option())
    assert sound.exit_code == 0
    assert sound.stdout.splitlines()[-1] == "          audit of 12.5 % of all blocks: no fault found"
    (row,) = lines(invoke("lanes", "--json", chain.option()).stdout)
    assert (row["audit"], row["audit_share"]) == (None, 0.125)

    fault = fault_record("polkadot", AuditFault(3, "pages", "the state differs"))
    send(chain.config.kafka, chain.config.topics.prefix, [("lanes", fault.key, fault.value)])
    for since, code in ((0, 1), (3, 1), (4, 0)):
        found = invoke("lanes", f"--audit-since={since}", chain.option())
        assert found.exit_code == code
        assert found.stdout.startswith("polkadot  AUDIT FAULT in block 3 (pages): the state differs\n")
    assert invoke("lanes", "--parked", chain.option()).exit_code == 0

    *_, last = invoke("watch", "lanes", chain.option()).stdout.splitlines()
    assert last.split() == ["polkadot", "3", "audit", "fault", "pages:", "the", "state", "differs"]
    status, audit = lines(invoke("watch", "lanes", "--json", chain.option()).stdout)[-2:]
    assert status["executed_block"] == 4
    assert audit == {"lane": "polkadot", "block": 3, "check": "pages", "detail": "the state differs"}


def test_watch_shows_why_a_lane_is_parked(chain: Follower) -> None:
    parked = Parked(Fault.MEMORY, "lane polkadot: no memory", 7)
    records = [parked.record("polkadot"), running("polkadot")]
    values = [("lanes", each.key, each.value) for output in records for each in output.records]
    create_topics(chain.config.kafka, prefix=chain.config.topics.prefix, topics=TOPICS)
    send(chain.config.kafka, chain.config.topics.prefix, values)
    shown = [line.split(maxsplit=3) for line in invoke("watch", "lanes", chain.option()).stdout.splitlines()[1:]]
    assert shown == [["polkadot", "7", "parked", "memory: no memory"], ["polkadot", "running"]]
