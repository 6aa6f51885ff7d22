# SPDX-License-Identifier: Apache-2.0
"""Makes what is deployed in several forms from one source: `make generate` writes all of it, and a test compares.

| made | from |
|---|---|
| `helm/validator` | the manifests of `kubernetes`; each default in `values.yaml` is what stands there |
| `kubernetes/monitoring/rules.yaml` | `prometheus/validator.rules.yml` |
| `kubernetes/strimzi/topics.yaml` | `validator/topics.py` |
| `kubernetes/strimzi/users.yaml` | the rights of `validator/rights.py` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.chart import made_chart
from deploy.operators import made_manifests

if TYPE_CHECKING:
    from pathlib import Path


def made() -> dict[Path, str]:
    """Return the text of each file that is made."""
    return made_manifests() | dict(made_chart())
