# SPDX-License-Identifier: Apache-2.0
"""Roots of rows: for a long row that is sent over again, a change costs its paths and not the row.

What is kept follows from the rows and is no part of the state.
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
    """The nodes of long rows, up to `limits.ROW_TREES_COLUMNS_MAX` columns of them."""

    __slots__ = ("_trees", "columns")

    def __init__(self) -> None:
        self._trees: dict[ParaId, Tree] = {}
        self.columns = 0

    def root(self, sender: ParaId, row: Sequence[Column], changed: Sequence[int]) -> Hash:
        """Return the root of a row, in which nothing but the ``changed`` columns is new since the last call for its sender, or `forget`."""
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
        """Drop the nodes of a row whose columns have come, gone or moved."""
        tree = self._trees.pop(sender, None)
        if tree is not None:
            self.columns -= len(tree)


def _leaf(column: Column) -> Hash:
    return cst_leaf(column.recipient, column.last_updated, column.message_root)
