# SPDX-License-Identifier: Apache-2.0
"""What a local job does so that its first batch comes soon, and the next ones without a gap; it would work without, only later."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streaming.session import SCRATCH
from streaming.stages import DECODE, IMPORTS, LANES
from tests.crash.processes import of_session
from tests.streaming.harness import produce
from tests.streaming.processes import job, write_configuration
from tests.streaming.reference import chains
from validator import exit_codes
from validator.kafka.topics import create_topics


def test_names_of_the_state_need_no_pandas() -> None:
    """Spark asks a process for them that executes nothing."""
    program = "import streaming.lane_operator, sys; print({'pandas', 'pyarrow', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize("stage", [DECODE, LANES])
def test_daemon_imports_what_its_workers_need(stage: str) -> None:
    program = (
        "import json, sys; from streaming.worker_daemon import _import; from streaming.stages import IMPORTS;"
        f"_import(IMPORTS[{stage!r}]); print(json.dumps(sorted(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(IMPORTS[stage]) <= set(json.loads(found.stdout))


def test_daemon_leaves_what_cannot_be_imported_to_the_worker() -> None:
    program = "from streaming.worker_daemon import _import; _import(['no_such_module']); print('continues')"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "continues"


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_planners_of_the_first_query_have_started_before_it(kafka: dict[str, Any], tmp_path: Path) -> None:
    """Each has one daemon: another one would mean that Spark did not find the first. And files of chunks are gone at the end."""
    prefix = "first-batch."
    create_topics(kafka, prefix=prefix)
    chain, *_ = chains()
    settings = write_configuration(tmp_path, (chain,), kafka, prefix, master="local[2]")
    produce(kafka, prefix, chain.records)
    with job(settings) as running:
        running.wait_for(lambda: bool(running.named("batch")), "a batch")
        planners = planners_of(running.process.pid)
        assert (tmp_path / "job" / SCRATCH / "chunks").is_dir()
        assert running.terminate() == exit_codes.OK
    assert not (tmp_path / "job" / SCRATCH / "chunks").exists()
    assert planners == {"lookup_data_sources": 1, "create_data_source": 1, "plan_data_source_read": 1}


def planners_of(driver: int) -> Counter[str]:
    """Return how many daemons of each kind a job has for its data sources; their workers are forked from them."""
    modules = {each: each.command.split()[-1] for each in of_session(driver) if "data_source" in each.command}
    daemons = [each for each in modules if each.parent not in {other.pid for other in modules}]
    return Counter(modules[each].rpartition(".")[2] for each in daemons)
