# SPDX-License-Identifier: Apache-2.0
"""What can be said of the next start before it: by `validator lanes`, and by a start that asks no Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_look import CHAIN, GENESIS, LAST, OTHER, Deployment, deployed, richer, with_keys
from tests.unit.lanes.chains import Chain
from validator.errors import UserError
from validator.job.start_check import check_accepted, refusal_of
from validator.lanes.configured import lane_definitions
from validator.lanes.kept_start import Accepted, kept_starts, started_epochs


@pytest.fixture
def deployment(kafka: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    return deployed(kafka, f"next-{request.node.name}", tmp_path)


def test_refusal_that_validator_lanes_predicts_is_that_of_the_start(deployment: Deployment) -> None:
    deployment.run(CHAIN)

    def predicted(of: Chain) -> str | None:
        config = deployment.config(of)
        kept = kept_starts(deployment.folder / "lanes")[CHAIN.lane]
        return refusal_of(config, CHAIN.lane, kept, started_epochs(lane_definitions(config)[CHAIN.lane].epochs), LAST)

    rules = {"profile": "router/2021-09"}
    limits = {**CHAIN.table["host_configuration"], "hrmp_channel_max_size": 7}
    handlers = {"handlers": [{"name": "remark"}], "ump_weights": {}, "ump_failing_messages": []}
    for keys in (
        {"ump_default_weight": 7},
        {"host_configuration": limits, **handlers},
        handlers,
        {"rules": [{"from_block": LAST, **rules}]},
        {"enactment": "on-inclusion"},
    ):
        changed = with_keys(CHAIN, **keys)
        assert predicted(changed) == deployment.refused(changed)
    assert predicted(richer(CHAIN)) == deployment.refused(richer(CHAIN))
    for fits in (CHAIN, with_keys(CHAIN, rules=[{"from_block": LAST + 1, **rules}])):
        assert predicted(fits) is None
        deployment.start(fits)


def test_accepted_change_of_an_unknown_lane_is_refused_without_kafka(deployment: Deployment) -> None:
    deployment.run(CHAIN, OTHER)
    config = deployment.config(CHAIN)
    with pytest.raises(UserError) as refused:
        check_accepted(config, Accepted(blocks={"poladot": 4}))
    assert str(refused.value) == (
        "--accept-change poladot:4: no such lane, did you mean polkadot; lanes are kusama, polkadot"
    )
    elsewhere = Accepted(removed=frozenset({"elsewhere"}))
    for known in (GENESIS, Accepted(removed=frozenset({"kusama"})), Accepted(blocks={CHAIN.lane: 4})):
        check_accepted(config, known)
    with pytest.raises(UserError, match="--accept-change elsewhere:removed: no such lane; lanes"):
        check_accepted(config, elsewhere)
    deployment.remove_checkpoint()
    check_accepted(config, elsewhere)  # its topics may still know it
