# SPDX-License-Identifier: Apache-2.0
"""What of a chain's configuration affects verdicts, in one form for all ways to write it, and its hash."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validator.config.limits import limits_by_table
from validator.config.table import DEFAULT_PROTOCOL
from validator.errors import UserError
from validator.hexadecimal import from_hex

if TYPE_CHECKING:
    from validator.config.chain import Chain


def configuration_digest(chain: Chain) -> bytes:
    """Return 32 bytes of BLAKE2b over all of a chain's configuration that affects verdicts (`configuration_meaning`).

    The hash covers canonical JSON: sorted keys, no spaces. Two ways to write the same configuration give the same digest. Raises
    `UserError` if the state file cannot be read.
    """
    # a date or time in a table of limits is an error that is reported later, when the lane is made
    canonical = json.dumps(configuration_meaning(chain), sort_keys=True, separators=(",", ":"), default=str)
    return blake2b(canonical.encode(), digest_size=32).digest()


def configuration_meaning(chain: Chain) -> dict[str, Any]:
    """Return all of a chain's configuration that affects verdicts, by key, in one form for all ways to write it.

    Limits are as `limits_by_table` returns them, genesis paras by id, weights by lower-case hex, and instead of a state file's name it has
    the BLAKE2b-256 of its bytes. Handlers and rules by height are not included: they depend on the block, and have their own digests
    (`validator.plugin.runtime`). Raises `UserError` if the state file cannot be read.
    """
    return {
        "protocol": chain.protocol,
        "enactment": chain.enactment,
        "balances": chain.balances,
        "hrmp_notifications": chain.hrmp_notifications,
        "first_block": chain.first_block,
        "state": None if chain.state is None else _file_digest(Path(chain.state)),
        **limits_by_table(chain.protocol, chain.limit_tables(), DEFAULT_PROTOCOL),
        "genesis_paras": [[para.para_id, para.kind.value, para.balance] for para in chain.core_paras()],
        "ump_default_weight": chain.ump_default_weight,
        "ump_weights": {payload.hex(): weight for payload, weight in chain.core_ump_weights().items()},
        "ump_message_weight_max": chain.ump_message_weight_max,
        "dispatches_to_handlers": chain.handlers is not None,
        "ump_failing_messages": sorted({from_hex(payload.lower()).hex() for payload in chain.ump_failing_messages}),
    }


def _file_digest(path: Path) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=32).hexdigest()
    except OSError as error:
        raise UserError(f"{path}: the chain's state cannot be read: {error.strerror}") from error
