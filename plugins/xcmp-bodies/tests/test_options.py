# SPDX-License-Identifier: Apache-2.0
"""A job with another number of buckets than its output on Kafka is refused, whatever else has output there."""

from __future__ import annotations

import pytest
from validator_xcmp_bodies.job import open_job

from validator.plugin.job_api import Job, JobContext, UserError

CHAINS = {"polkadot": {"protocol": "xcmp-network"}, "kusama": {"protocol": "xcmp-network"}}


def job(buckets: int) -> Job:
    return open_job(JobContext("xcmp-bodies", {"buckets": buckets}, CHAINS))


def test_output_of_the_same_number_is_accepted() -> None:
    others = ["polkadot", "kusama", "polkadot/other-job/0-3", "gone/xcmp-bodies/0-3"]
    for buckets in (1, 2, 12):
        job(buckets).check_written([*others, *job(buckets).keys])


@pytest.mark.parametrize(("before", "now"), [(1, 2), (2, 1), (2, 12)])
def test_another_number_is_refused_as_soon_as_one_bucket_has_output(before: int, now: int) -> None:
    for key in job(before).keys:
        with pytest.raises(UserError, match=rf"\[jobs.xcmp-bodies\] buckets: expected {before}, .* found {now}"):
            job(now).check_written(["polkadot", key])
