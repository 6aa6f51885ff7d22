# SPDX-License-Identifier: Apache-2.0
"""Roots of rows. The nodes of long rows are cached, so a change costs only its paths, not the full row.

The cache is derived from the rows and is not part of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from validator.plugin.protocol_api import Hash, ParaId
from validator_xcmp import limits
from validator_xcmp.commitments import cst_leaf
from validator_xcmp.merkle import CST, Tree, tree_root

if TYPE_CHECKING:
    from validator_xcmp.state import Column


def row_root(row: Sequence[Column]) -> Hash:
    """Return the root over a row's columns."""
    return tree_root(CST, list(map(_leaf, row)))


class RowTrees:
    """A cache of the nodes of long rows, with at most `limits.ROW_TREES_COLUMNS_MAX` columns in total."""

    __slots__ = ("_trees", "columns")

    def __init__(self) -> None:
        self._trees: dict[ParaId, Tree] = {}
        self.columns = 0

    def root(self, sender: ParaId, row: Sequence[Column], changed: Sequence[int]) -> Hash:
        """Return a row's root. Only the ``changed`` columns may differ from the last call for this sender, unless `forget` came between."""
        if len(row) < limits.ROW_TREE_COLUMNS_MIN:
            return row_root(row)
        tree = self._trees.pop(sender, None)
        if tree is None:
            tree = Tree(list(map(_leaf, row)))
            self.columns += len(tree)
        else:
            tree.replace((index, _leaf(row[index])) for index in changed)
        self._trees[sender] = tree
        while self.columns > limits.ROW_TREES_COLUMNS_MAX and len(self._trees) > 1:
            self.forget(next(iter(self._trees)))
        return tree.root(CST)

    def forget(self, sender: ParaId) -> None:
        """Drop the nodes of a row whose columns were added, removed or moved."""
        tree = self._trees.pop(sender, None)
        if tree is not None:
            self.columns -= len(tree)


def _leaf(column: Column) -> Hash:
    return cst_leaf(column.recipient, column.last_updated, column.message_root)
