# SPDX-License-Identifier: Apache-2.0
"""Load the project's hypothesis profile."""

from __future__ import annotations

from tests import hypothesis_profile

hypothesis_profile.load()
