# SPDX-License-Identifier: Apache-2.0
"""Creates a plugin's project from the templates in `templates/`.

A template is a file ``<name>.in`` with `string.Template` fields: ``name`` of the plugin, ``distribution``, ``package``, ``title`` (the name
in CamelCase), ``api_version``, ``lower`` and ``upper`` (the bounds on validator's version). ``PACKAGE`` in a path stands for the package's
name.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Final

from validator import __version__
from validator.core.handlers.handler import KIND
from validator.errors import UserError
from validator.plugin.api import API_VERSION

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"
KINDS: Final = ("handler", "protocol", "transport")
"""The kinds of new plugins; each is a folder of `TEMPLATES`."""


def new_project(name: str, kind: str, output: Path) -> list[Path]:
    """Write a project into the folder ``validator-<name>`` below ``output`` and return its files, ascending.

    Raises `UserError`, in this order, for an invalid plugin name, an unknown kind, a folder that already exists, and a failed write.
    """
    if not KIND.fullmatch(name):
        raise UserError(
            f"plugin name: expected 1 to 64 of a-z 0-9 . _ - with a letter or digit at both ends, found {name!r}"
        )
    if kind not in KINDS:
        raise UserError(f"kind: expected one of {', '.join(KINDS)}, found {kind!r}")
    words = re.split(r"[._-]+", name)
    fields = {
        "name": name,
        "distribution": f"validator-{'-'.join(words)}",
        "package": f"validator_{'_'.join(words)}",
        "title": "".join(word.capitalize() for word in words),
        "api_version": str(API_VERSION),
        "lower": ".".join(__version__.split(".")[:2]),
        "upper": str(int(__version__.split(".")[0]) + 1),
    }
    folder = output / fields["distribution"]
    if folder.exists():
        raise UserError(f"{folder}: expected a folder that does not exist yet")
    written = []
    try:
        for template in sorted((TEMPLATES / kind).rglob("*.in")):
            relative = template.relative_to(TEMPLATES / kind).as_posix().replace("PACKAGE", fields["package"])
            path = folder / relative.removesuffix(".in")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(template.read_text("utf-8")).substitute(fields), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise UserError(f"{folder}: the project cannot be written: {error.strerror}") from error
    return sorted(written)
