# SPDX-License-Identifier: Apache-2.0
"""Makes what is deployed in several forms from one source: `python -m deploy.generate` writes all of it, and a test compares.

| made | from |
|---|---|
| `helm/validator` | the manifests of `kubernetes`; each default in `values.yaml` is what stands there |
| `kubernetes/monitoring/rules.yaml` | `prometheus/validator.rules.yml` |
| `kubernetes/strimzi/topics.yaml` | `validator/topics.py` |
| `kubernetes/strimzi/users.yaml` | the rights of `validator/rights.py` |
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from deploy.chart import made_chart
from deploy.operators import made_manifests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def made() -> Iterator[tuple[Path, str]]:
    """Yield each file that is made, and its text."""
    yield from made_manifests().items()
    yield from made_chart()


if __name__ == "__main__":
    # without options: it says what it does, and refuses what it does not know
    argparse.ArgumentParser(
        prog="python -m deploy.generate",
        description="Writes the Helm chart, the alerts, and the topics and users of Strimzi below deploy/, from their sources.",
    ).parse_args()
    for path, text in made():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
