# SPDX-License-Identifier: Apache-2.0
"""Jobs of plugins are found by the name of their entry point, and anything else is one clear line."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from validator.config import Config
from validator.errors import UserError
from validator.job.installed import configured_job, of_job
from validator.plugin import job_api
from validator.plugin.job_api import JobContext, open_job


def test_a_job_gets_its_table_and_the_chains() -> None:
    config = Config.model_validate(
        {
            "chains": {"polkadot": {"limits": {}}, "kusama": {"limits": {}}},
            "jobs": {"xcmp-bodies": {"chains": ["kusama"], "buckets": 2}},
        }
    )
    assert configured_job(config, "xcmp-bodies").keys == ("kusama/xcmp-bodies/0-2", "kusama/xcmp-bodies/1-2")


def test_a_job_has_a_folder_below_that_of_the_lanes() -> None:
    config = Config.model_validate({"job": {"directory": "/jobs"}})
    assert of_job(config, "xcmp-bodies").job.directory == "/jobs/jobs/xcmp-bodies"


def test_a_name_that_no_plugin_has_lists_those_that_there_are() -> None:
    with pytest.raises(
        UserError, match=r"job mail: no plugin of group validator.jobs has this name; installed: .*xcmp-bodies"
    ):
        open_job(JobContext("mail"))


def entries(*values: str) -> EntryPoints:
    return EntryPoints(EntryPoint("mail", value, job_api.JOBS) for value in values)


def test_two_plugins_of_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_api, "entry_points", lambda **wanted: entries("one:job", "other:job"))
    with pytest.raises(UserError, match="job mail: more than one plugin"):
        open_job(JobContext("mail"))


def test_a_plugin_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_api, "entry_points", lambda **wanted: entries("no_such_module:job"))
    with pytest.raises(UserError, match="job mail: importing no_such_module:job failed"):
        open_job(JobContext("mail"))
