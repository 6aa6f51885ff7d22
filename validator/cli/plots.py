# SPDX-License-Identifier: Apache-2.0
"""How commands write plots, also those of plugins. Imported only when plots are asked for: matplotlib comes with the extra `plots`.

The same data give the same bytes with the same version of matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from validator.errors import UserError, not_installed

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise not_installed("matplotlib", "plots", for_="--plots") from error

__all__ = ["Figure", "in_style", "save"]

_METADATA: Final[Any] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
"""Neither a date nor a version in a file."""


def in_style(name: str) -> Any:
    """Return a context manager in which figures have the style of all plots; ``name`` makes ids that do not change from run to run."""
    return mpl.rc_context(
        {
            "svg.hashsalt": name,
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )


def save(figure: Figure, directory: Path, name: str, formats: Sequence[str]) -> Iterator[Path]:
    """Write a figure in each of the formats and yield the paths of the files. Raises `UserError`."""
    for form in formats:
        path = directory / f"{name}.{form}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=120, metadata=_METADATA[form])
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from error
        yield path
