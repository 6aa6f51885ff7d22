# SPDX-License-Identifier: Apache-2.0
"""Pages work: the test writes every file, runs every command and compares the output with the page; and the site is built."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, Block, blocks, run
from tests.registries import RegistryServer
from tests.tidy.tree import ROOT
from validator.config import Config

if TYPE_CHECKING:
    from pathlib import Path


PORT = "9443"
"""The port of channel-peers.md, which another process may have."""


class Part(NamedTuple):
    """A page up to the text ``until``, at which its commands end or begin to need a job."""

    page: str
    until: str = ""
    before: tuple[str, ...] = tuple(AS_ON_A_TERMINAL)


REAL_VERDICTS = """python - <<'END'
import json
from validator.client import in_memory
from validator.client.streams import BEGINNING
from validator.codec.json_form import shown_json
paras = [{"para_id": para, "balance": 10**12} for para in (2000, 2004)]
chain = {"host_configuration": {"preset": "polkadot-2023"}, "genesis_paras": paras}
with in_memory({"chains": {"polkadot": chain}}) as client, open("verdicts.jsonl", "w") as file:
    with client.producer("polkadot").block(1) as block:
        block.downward(2000, b"x")
        block.candidate(2000, hrmp_watermark=9)
        block.candidate(2004, hrmp_watermark=0, horizontal_messages=[{"recipient": 2000, "data": b"x"}])
        block.candidate(2004, hrmp_watermark=0)
    for record in client._backend.read("verdicts", BEGINNING).poll(0):
        file.write(json.dumps(shown_json("verdicts", record.value)) + chr(10))
END"""
"""What `validator watch verdicts --json` prints of a lane in memory."""

WITHOUT_JOB = (
    Part("checks-in-ci.md"),
    Part("client.md"),
    Part("compare.md", "## 2."),
    Part("inspect.md"),
    Part("rules-by-height.md", "The [conformance suite]"),
    Part("tables.md", "## Parquet", (*AS_ON_A_TERMINAL, REAL_VERDICTS)),
    Part("trace-format.md", "A file holds one scenario"),
    Part("write-a-handler.md", "## 7.", ()),
)
WITH_JOB = (
    Part("channel-peers.md", "## In a program", ("export PYTHONPATH=",)),
    Part("compare.md"),
    Part("deploy-a-handler.md"),
    Part("monitoring.md"),
    Part("real-data.md", "## What to seed"),
    Part("webhooks.md", "## A subscription"),
    Part("write-a-handler.md", "", ()),
)


def check(part: Part, folder: Path) -> None:
    text = (DOCS / part.page).read_text(encoding="utf-8")
    end = text.index(part.until) if part.until else len(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        shown = text[:end].replace(PORT, str(free.getsockname()[1]))
    found = blocks(shown)
    assert found
    run(found, folder, [*part.before]).check()


@pytest.mark.parametrize("part", WITHOUT_JOB, ids=lambda part: part.page)
def test_page_works(part: Part, tmp_path: Path) -> None:
    check(part, tmp_path)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("part", WITH_JOB, ids=lambda part: part.page)
def test_page_with_a_job_works(part: Part, tmp_path: Path) -> None:
    check(part, tmp_path)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        ('sed -i \'s/"used_bytes": 4/"used_bytes": 5/\' channel.json', "FAIL our-para/channel"),
        ("echo '[]' > channel.json", "nothing was checked"),
        ("sed -i s/2000/7/ good.json", "note: para 7 is not registered"),
        ("cp bad.json good.json", "HrmpWatermark/AheadRelayParent"),
    ],
)
def test_script_of_checks_in_ci_fails_for_everything_that_is_wrong(break_it: str, words: str, tmp_path: Path) -> None:
    found = blocks((DOCS / "checks-in-ci.md").read_text(encoding="utf-8"))
    files = [block for block in found if block.language not in ("console", "yaml")]
    assert run(files, tmp_path, AS_ON_A_TERMINAL).done.returncode == 0
    failed = run([], tmp_path, [*AS_ON_A_TERMINAL, break_it, "! sh checks.sh"]).done
    assert failed.returncode == 0, failed.stdout
    assert words in failed.stdout


REGISTRY_PAGE = (DOCS / "schema-registry.md").read_text(encoding="utf-8")


def test_page_of_the_registry_works(tmp_path: Path, registry_server: RegistryServer) -> None:
    exported = [
        f"export VALIDATOR_SCHEMA_REGISTRY__{key.upper()}={each}" for key, each in registry_server.table.items()
    ]
    before = [*AS_ON_A_TERMINAL, *exported]
    run([block for block in blocks(REGISTRY_PAGE) if block.language == "console"], tmp_path, before).check()
    assert "validator.verdicts-validator.Verdict" in registry_server.subjects()


def test_configuration_of_that_page_is_valid() -> None:
    (shown,) = [block.content for block in blocks(REGISTRY_PAGE) if block.language == "toml"]
    assert Config(**tomllib.loads(shown)).schema_registry.url == "http://localhost:8081"


UPGRADE_PAGE = DOCS / "upgrade.md"
DEPLOYMENT = """\
$ validator up
$ validator submit channel-requests channel-requests.jsonl
$ validator submit blocks blocks.jsonl
$ validator submit candidates candidates.jsonl
$ validator watch verdicts --count 4
"""
"""What docs/first-channel.md does before."""


def section(title: str) -> list[Block]:
    text = UPGRADE_PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {title}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [block for block in blocks(found) if block.language == "console"]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_deployment_is_backed_up_restored_rebuilt_and_moved(tmp_path: Path) -> None:
    made = [*AS_ON_A_TERMINAL, "validator init first-channel > made.log", "cd first-channel"]
    run([Block("console", DEPLOYMENT, None)], tmp_path, made).check()
    folder = tmp_path / "first-channel"
    for title in ("Back up", "Restore", "Without a backup"):
        parts = section(title)
        assert parts, title
        run(parts, folder, AS_ON_A_TERMINAL).check()
    elsewhere = tmp_path / "another-machine"
    elsewhere.mkdir()
    shutil.move(tmp_path / "backup.tar.gz", elsewhere)
    folder.rename(tmp_path / "gone")
    run(section("Move to another machine"), elsewhere, AS_ON_A_TERMINAL).check()


@pytest.mark.long
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs comes with the extra docs: `make docs`")
def test_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("index", "ARCHITECTURE", "readers/operators", "api/client", "source/examples/validator.toml"):
        assert (tmp_path / f"{name}.html").exists() or (tmp_path / f"{name}.md.html").exists(), name
    index = (tmp_path / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "OutboundHrmp/CapacityExceeded" in index
    assert "class DuplicateWindow" not in index, "the tree's own files are not searched"
