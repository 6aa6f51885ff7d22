# SPDX-License-Identifier: Apache-2.0
"""A distribution of one module, as an installer leaves it in a folder on the path."""

from __future__ import annotations

import json
from pathlib import Path

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{project}"
version = "1.0.0"
[project.entry-points."{group}"]
{entry} = "{module}"
[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]
"""


def make_distribution(
    folder: Path,
    module: str,
    source: str,
    *,
    entry: str = "remark",
    group: str = "validator.handlers",
    editable: bool = False,
) -> str:
    """Install a module with this source into a folder and return the distribution's name; an editable one gets a project to build."""
    project = module.replace("_", "-")
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry} = {module}\n")
    names = ["METADATA", "entry_points.txt", "RECORD"]
    (info / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in names) + f"{module}.py,,\n")
    if editable:
        (folder / "pyproject.toml").write_text(
            PYPROJECT.format(project=project, group=group, entry=entry, module=module)
        )
        (info / "direct_url.json").write_text(json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}}))
    return project
