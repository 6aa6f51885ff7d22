# SPDX-License-Identifier: Apache-2.0
"""An embedded broker with access control, of which its own user is an administrator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from validator.kafka import broker as broker_module
from validator.kafka.broker import USER, EmbeddedBroker
from validator.kafka.settings import admin_config

PASSWORD: Final = "not a secret"
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:broker;User:{USER}",
}


@contextmanager
def guarded_broker(folder: Path, users: Sequence[str], rights: Sequence[AclBinding]) -> Iterator[EmbeddedBroker]:
    """Run a broker that knows users with `PASSWORD` and these rights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "_PROPERTIES", broker_module._PROPERTIES | AUTHORIZER)
        with EmbeddedBroker(folder) as broker:
            admin = AdminClient(admin_config(broker.kafka))
            kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            known = [UserScramCredentialUpsertion(user, kind, PASSWORD.encode()) for user in users]
            for each in (*admin.alter_user_scram_credentials(known).values(), *admin.create_acls([*rights]).values()):
                each.result()
            yield broker


def login_of(broker: EmbeddedBroker, user: str, **more: str) -> dict[str, Any]:
    """Return the `[kafka]` table of a user."""
    return {**broker.kafka, "sasl.username": user, "sasl.password": PASSWORD, **more}
