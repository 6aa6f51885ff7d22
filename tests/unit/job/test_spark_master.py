# SPDX-License-Identifier: Apache-2.0
"""A job on a standalone cluster without a secret is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.config import Config
from validator.errors import UserError
from validator.job.deployment import check_job
from validator.job.spark_master import check_secret

MASTER = "spark://there:7077"
REFUSED = (
    rf"^\[job\] master {MASTER}: expected the cluster's spark.authenticate.secret in spark-defaults.conf, found none"
)


@pytest.mark.parametrize("text", ["spark.authenticate.secret abc", "# a comment\n  spark.authenticate.secret=abc\n"])
def test_secret_in_sparks_defaults_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(text)
    check_secret(MASTER, {"SPARK_CONF_DIR": str(tmp_path)})
    (tmp_path / "conf").mkdir()
    (tmp_path / "spark-defaults.conf").rename(tmp_path / "conf" / "spark-defaults.conf")
    check_secret(MASTER, {"SPARK_HOME": str(tmp_path)})


@pytest.mark.parametrize("text", [None, "", "#spark.authenticate.secret abc", "spark.authenticate.secret\nspark.x y"])
def test_cluster_that_admits_everybody_is_refused_at_once(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    job = {"directory": str(tmp_path / "job"), "master": MASTER}
    with pytest.raises(UserError, match=REFUSED):
        check_job(Config.model_validate({"job": job, "chains": {"a": {}}}))


def test_secret_may_be_given_otherwise_or_not_be_needed(tmp_path: Path) -> None:
    here = {"SPARK_CONF_DIR": str(tmp_path)}
    check_secret(MASTER, here | {"PYSPARK_SUBMIT_ARGS": "--conf spark.authenticate.secret=x pyspark-shell"})
    check_secret("local[2]", here)
    check_secret("k8s://https://there", here)
