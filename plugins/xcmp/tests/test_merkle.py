# SPDX-License-Identifier: Apache-2.0
"""The trees compared with the text of RFC 9162, and proofs that are forged in every part."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_xcmp.limits import PROOF_PATH_HASHES_MAX
from validator_xcmp.merkle import CST, MSG, TAGS, Path, Tree, leaf_hash, prove, tree_root, verify

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33)


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()


def mth(leaves: list[bytes]) -> bytes:
    """RFC 9162 2.1.1, with the split at the largest power of two below the number of leaves."""
    if not leaves:
        return digest(b"")
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return digest(b"\x01" + mth(leaves[:split]) + mth(leaves[split:]))


def path_by_definition(leaves: list[bytes], index: int) -> list[bytes]:
    """RFC 9162 2.1.3.1."""
    if len(leaves) <= 1:
        return []
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    if index < split:
        return [*path_by_definition(leaves[:split], index), mth(leaves[split:])]
    return [*path_by_definition(leaves[split:], index - split), mth(leaves[:split])]


def tree(size: int, tag: bytes = CST) -> list[bytes]:
    return [leaf_hash(tag, bytes((at,))) for at in range(size)]


def test_leaf_and_root_are_tagged_versioned_and_sized() -> None:
    leaf = leaf_hash(CST, b"data")
    assert leaf == digest(b"\x00xcmp/cst\x01data")
    assert tree_root(CST, [leaf]) == digest(b"\x02xcmp/cst\x01" + (1).to_bytes(4, "little") + leaf)
    assert tree_root(MSG, []) == digest(b"\x02xcmp/msg\x01" + bytes(4) + digest(b""))


@pytest.mark.parametrize("size", range(70))
def test_roots_and_paths_match_definition(size: int) -> None:
    leaves = tree(size)
    assert tree_root(CST, leaves) == digest(b"\x02xcmp/cst\x01" + size.to_bytes(4, "little") + mth(leaves))
    for index in range(size):
        path = prove(leaves, index)
        assert path == Path(index, size, tuple(path_by_definition(leaves, index)))
        assert verify(CST, tree_root(CST, leaves), leaves[index], path)


@pytest.mark.parametrize("size", range(1, 40))
def test_tree_with_replaced_leaves_has_root_of_new_leaves(size: int) -> None:
    leaves = tree(size)
    kept = Tree(leaves)
    assert (len(kept), kept.root(CST)) == (size, tree_root(CST, leaves))
    for step in range(1, size + 1):
        changed = sorted({at * step % size for at in range(step)})
        replaced = [(at, leaf_hash(CST, bytes((at, step)))) for at in changed]
        for at, leaf in replaced:
            leaves[at] = leaf
        kept.replace(replaced)
        assert kept.root(CST) == tree_root(CST, leaves)


@pytest.mark.parametrize("size", SIZES)
def test_proof_fails_for_every_other_index_or_size(size: int) -> None:
    leaves = tree(size)
    root = tree_root(CST, leaves)
    for index in range(size):
        path = prove(leaves, index)
        held = [
            (at, of)
            for of in range(38)
            for at in range(-1, of + 1)
            if verify(CST, root, leaves[index], path._replace(index=at, size=of))
        ]
        assert held == [(index, size)]


def test_other_pairs_verify_if_root_omits_size() -> None:
    """This shows that the test above can fail: it covers the pairs that a root without the count would accept."""
    leaves = tree(3)
    path = prove(leaves, 2)
    # an odd leaf moved up: the same hashes prove it under sizes 2 and 3
    assert prove([mth(leaves[:2]), leaves[2]], 1).siblings == path.siblings
    assert not verify(CST, tree_root(CST, leaves), leaves[2], path._replace(index=1, size=2))


@pytest.mark.parametrize("index", [-1, 3, 4])
def test_proof_of_missing_leaf_raises(index: int) -> None:
    with pytest.raises(IndexError):
        prove(tree(3), index)


def test_nodes_and_leaves_and_tags_are_distinct() -> None:
    leaves = tree(4)
    root = tree_root(CST, leaves)
    planted = digest(b"\x01" + leaves[0] + leaves[1])
    assert not verify(CST, root, planted, Path(0, 2, (digest(b"\x01" + leaves[2] + leaves[3]),)))
    for tag in (*TAGS, b"xcmp/xyz", b""):
        assert verify(tag, root, leaves[1], prove(leaves, 1)) == (tag == CST)


@given(size=st.integers(1, 40), data=st.data())
def test_changed_path_proves_nothing(size: int, data: st.DataObject) -> None:
    leaves = tree(size)
    index = data.draw(st.integers(0, size - 1))
    root, leaf, path = tree_root(CST, leaves), leaves[index], prove(leaves, index)
    siblings = list(path.siblings)
    how = data.draw(st.sampled_from(("leaf", "root", "flip", "drop", "add", "double", "reverse")))
    if how in ("flip", "drop", "double") and not siblings:
        how = "add"
    if how == "leaf":
        leaf = data.draw(
            st.sampled_from([*tree(size), *tree(size, MSG), bytes(32)]).filter(lambda other: other != leaf)
        )
    elif how == "root":
        root = flipped(root, data)
    elif how == "flip":
        at = data.draw(st.integers(0, len(siblings) - 1))
        siblings[at] = flipped(siblings[at], data)
    elif how == "drop":
        del siblings[data.draw(st.integers(0, len(siblings) - 1))]
    elif how == "add":
        siblings.insert(
            data.draw(st.integers(0, len(siblings))), data.draw(st.sampled_from([*leaves, root, bytes(32)]))
        )
    elif how == "double":
        siblings.append(siblings[-1])
    else:
        siblings.reverse()
    forged = Path(index, size, tuple(siblings))
    same = (forged, leaf, root) == (path, leaves[index], tree_root(CST, leaves))
    assert verify(CST, root, leaf, forged) == same


def flipped(value: bytes, data: st.DataObject) -> bytes:
    bit = data.draw(st.integers(0, 8 * len(value) - 1))
    return bytes(byte ^ (1 << bit % 8 if at == bit // 8 else 0) for at, byte in enumerate(value))


class Stranger:
    """Of no type that a proof may hold; its name is the same in every process."""

    def __repr__(self) -> str:
        return "a stranger"


ODD: tuple[Any, ...] = (
    None,
    -1,
    2**32,
    2**64,
    1.0,
    True,
    "0",
    "",
    b"",
    b"\x00" * 31,
    b"\x00" * 33,
    [],
    {},
    (),
    Stranger(),
)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_malformed_values_are_rejected_without_error(odd: Any) -> None:
    leaves = tree(2)
    root, path = tree_root(CST, leaves), prove(leaves, 0)
    assert not verify(CST, root, odd, path)
    assert not verify(CST, odd, leaves[0], path)
    assert not verify(CST, root, leaves[0], odd)
    assert not verify(CST, root, leaves[0], path._replace(index=odd))
    assert not verify(CST, root, leaves[0], path._replace(size=odd))
    assert not verify(CST, root, leaves[0], path._replace(siblings=odd))
    assert not verify(CST, root, leaves[0], path._replace(siblings=(odd,)))


def test_path_longer_than_tree_depth_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = tree(2)
    root = tree_root(CST, leaves)
    hashed = []
    monkeypatch.setattr("validator_xcmp.merkle._node", lambda left, right: hashed.append(1) or digest(left + right))
    endless = Path(0, 2**32 - 1, (bytes(32),) * 1_000_000)
    assert not verify(CST, root, leaves[0], endless)
    assert not hashed
    assert not verify(CST, root, leaves[0], endless._replace(siblings=(bytes(32),) * PROOF_PATH_HASHES_MAX))
    assert len(hashed) == PROOF_PATH_HASHES_MAX
