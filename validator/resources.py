# SPDX-License-Identifier: Apache-2.0
"""Files that travel with the package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def schemas_directory() -> Path:
    """Return the folder of the Avro schemas: inside the wheel, or `avro/` at the root of a checkout."""
    shipped = _PACKAGE / "schemas"
    return shipped if shipped.is_dir() else _PACKAGE.parent / "avro"
