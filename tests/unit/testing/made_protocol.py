# SPDX-License-Identifier: Apache-2.0
"""A protocol's project from the template, changed at will, as an editable installation leaves it on the path."""

from __future__ import annotations

import json
from pathlib import Path

from validator.plugin.scaffold import new_project

CHECK = "    para_id = candidate.para_id\n"
RAISES = (CHECK, f"{CHECK}    assert state.block\n")
"""A change of `rules.py`: checking a candidate reads an attribute that does not exist."""


def make_protocol(folder: Path, name: str, *changes: tuple[str, str], file: str = "rules.py") -> Path:
    """Write a project with changes to a file of its package, and return its folder; ``src`` in it belongs on the path."""
    new_project(name, "protocol", folder)
    project = folder / f"validator-{name}"
    module = f"validator_{name}"
    path = project / "src" / module / file
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    info = project / "src" / f"{module}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: validator-{name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[validator.protocols]\n{name} = {module}\n")
    (info / "RECORD").write_text("")
    (info / "direct_url.json").write_text(json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}))
    return project
