# SPDX-License-Identifier: Apache-2.0
"""A distribution of one module, as an installer leaves it in a folder on the path."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    project = make_distribution_of(folder, module, {entry: (module, source)}, group)
    if editable:
        info = folder / f"{module}-1.0.0.dist-info"
        (folder / "pyproject.toml").write_text(
            PYPROJECT.format(project=project, group=group, entry=entry, module=module)
        )
        (info / "direct_url.json").write_text(json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}}))
    return project


def make_distribution_of(
    folder: Path, name: str, plugins: Mapping[str, tuple[str, str]], group: str = "validator.handlers"
) -> str:
    """Install modules with their sources, by entry point, into a folder and return the distribution's name."""
    project = name.replace("_", "-")
    info = folder / f"{name}-1.0.0.dist-info"
    info.mkdir()
    files = [f"{info.name}/{file}" for file in ("METADATA", "entry_points.txt", "RECORD")]
    for module, source in plugins.values():
        (folder / f"{module}.py").write_text(source)
        files.append(f"{module}.py")
    entries = "".join(f"{entry} = {module}\n" for entry, (module, _) in plugins.items())
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entries}")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return project
