# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/schema-registry.md work, with a stand-in for the registry."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, blocks, run
from tests.registry_stand_in import stand_in
from validator.config import Config

TEXT = (DOCS / "schema-registry.md").read_text(encoding="utf-8")


def test_page_works(tmp_path: Path) -> None:
    with stand_in() as registry:
        before = [*AS_ON_A_TERMINAL, f"export VALIDATOR_SCHEMA_REGISTRY__URL={registry.url}"]
        run([block for block in blocks(TEXT) if block.language == "console"], tmp_path, before).check()
        assert "validator.verdicts-validator.Verdict" in registry.subjects


def test_configuration_of_the_page_is_valid() -> None:
    (shown,) = [block.content for block in blocks(TEXT) if block.language == "toml"]
    assert Config(**tomllib.loads(shown)).schema_registry.url == "http://localhost:8081"
