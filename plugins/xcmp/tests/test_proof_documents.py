# SPDX-License-Identifier: Apache-2.0
"""Documents of `validator prove` and `validator verify`: proofs verify, changed ones are rejected, trusted values are checked."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_xcmp.plugin import validator_protocols
from xcmp_changes import ODD, change_somewhere
from xcmp_forgeries import FORGERIES, world
from xcmp_world import Json, Sender, accounts, compact, entry_of, le32, root_and_path

from tests.hypothesis_profile import examples
from validator.errors import UserError
from validator.plugin.protocol_api import Node, ProofFormat

README = Path(__file__).resolve().parents[1] / "README.md"
HASH = "ab" * 32

(PROTOCOL,) = validator_protocols()
assert PROTOCOL.proofs is not None
PROOFS: ProofFormat = PROTOCOL.proofs

U32 = st.integers(0, 2**32 - 1)
HASHES = st.binary(min_size=32, max_size=32)


def prove(kind: str, document: Any) -> Json:
    """Return a proof after a round trip through JSON."""
    return json.loads(json.dumps(PROOFS.prove(kind, Node(document, "document"))))


def verify(kind: str, document: Any) -> Json:
    return json.loads(json.dumps(PROOFS.verify(kind, Node(document, "document"))))


# --- documents, each with its expected output and its result ---


def path_of(tag: bytes, leaves: list[bytes], index: int) -> tuple[str, Json]:
    root, path = root_and_path(tag, leaves, index)
    return root.hex(), {"index": index, "size": len(leaves), "path": [sibling.hex() for sibling in path]}


@st.composite
def rows(draw: st.DrawFn) -> tuple[Json, Json, Json]:
    recipients = draw(st.lists(U32, min_size=1, max_size=7, unique=True))
    row = [(recipient, draw(U32), draw(st.none() | HASHES)) for recipient in recipients]
    index = draw(st.integers(0, len(row) - 1))
    leaves = [le32(para) + le32(block) + (b"\x00" if root is None else b"\x01" + root) for para, block, root in row]
    root, path = path_of(b"xcmp/cst", leaves, index)
    columns = [
        {"recipient": para, "last_updated": block, "message_root": root and root.hex()} for para, block, root in row
    ]
    recipient, claim = (
        columns[index]["recipient"],
        {name: columns[index][name] for name in ("last_updated", "message_root")},
    )
    proved = {"root": root, "recipient": recipient, "proof": {**claim, **path}}
    return {"row": columns, "index": index}, proved, {"ok": True, **claim}


@st.composite
def heads(draw: st.DrawFn) -> tuple[Json, Json, Json]:
    by_para = draw(st.dictionaries(U32, HASHES, min_size=1, max_size=7))
    recipient = draw(st.sampled_from(sorted(by_para)))
    order = sorted(by_para)
    root, path = path_of(b"xcmp/mqr", [le32(para) + by_para[para] for para in order], order.index(recipient))
    head = by_para[recipient].hex()
    document = {"heads": {str(para): each.hex() for para, each in by_para.items()}, "recipient": recipient}
    proved = {"root": root, "recipient": recipient, "proof": {"head": head, **path}}
    return document, proved, {"ok": True, "head": head}


@st.composite
def payloads(draw: st.DrawFn) -> tuple[Json, Json, Json]:
    message = draw(st.lists(st.binary(max_size=80), min_size=1, max_size=7))
    index = draw(st.integers(0, len(message) - 1))
    root, path = path_of(b"xcmp/msg", [compact(len(payload)) + payload for payload in message], index)
    payload = message[index].hex()
    document = {"payloads": [each.hex() for each in message], "index": index}
    answer = {"ok": True, "index": index, "size": len(message), "payload": payload}
    return document, {"root": root, "proof": {"payload": payload, **path}}, answer


def history(sender: Sender, skipped: int = 0) -> Json:
    """Return a sender's history without its first ``skipped`` messages."""
    document: Json = {
        "row": [
            {"recipient": para, "last_updated": block, "message_root": None if root is None else root.hex()}
            for para, block, root in sender.row
        ],
        "heads": {str(para): head.hex() for para, head in sender.heads.items()},
        "messages": [
            {"block": block, "payloads": [payload.hex() for payload in each]}
            for block, each in sender.messages[skipped:]
        ],
    }
    if 0 < skipped < len(sender.links):
        link = sender.links[skipped]
        document |= {"base_head": link["prev_head"], "base_block": link["prev_block"]}
    return document


@st.composite
def processings(draw: st.DrawFn) -> tuple[Json, Json, Json]:
    senders, entry = draw(accounts())
    context = dict(entry["context"])
    old = context["old_watermark"]
    histories = {}
    for sender in senders:
        read = [block for block, _ in sender.messages if old is not None and [block, sender.para] <= old]
        histories[str(sender.para)] = history(sender, draw(st.integers(0, len(read))))
    proved = {"context": entry["context"], "proof": entry["proof"]}
    if draw(st.booleans()):
        context = {name: value for name, value in context.items() if name != "cst_roots"}
    return {"context": context, "histories": histories}, proved, entry["expect"]


DOCUMENTS = {"row": rows(), "head": heads(), "payload": payloads(), "processing": processings()}


def test_every_kind_has_documents() -> None:
    assert tuple(DOCUMENTS) == PROOFS.kinds


# --- round trips ---


@pytest.mark.parametrize("kind", DOCUMENTS)
@given(data=st.data())
def test_proof_verifies(kind: str, data: st.DataObject) -> None:
    document, proved, answer = data.draw(DOCUMENTS[kind])
    assert prove(kind, document) == proved
    assert verify(kind, proved) == answer


@pytest.mark.parametrize("kind", DOCUMENTS)
@examples(200)
@given(data=st.data())
def test_changed_proof_proves_same_or_nothing(kind: str, data: st.DataObject) -> None:
    document, proved, answer = data.draw(DOCUMENTS[kind])
    for _ in range(data.draw(st.integers(1, 3))):
        container = {"proof": proved["proof"]} if "proof" in proved else {}
        change_somewhere(container, data)
        proved = {**{name: value for name, value in proved.items() if name != "proof"}, **container}
    result = verify(kind, proved)
    if kind == "payload" and result["ok"]:  # equal payloads can have equal paths
        answer["index"] = result["index"]
        assert document["payloads"][result["index"]] == result["payload"]
    prefix = "Pov/" if kind == "processing" else f"{kind.title()}/ProofInvalid"
    assert result == answer or (not result["ok"] and result["error"]["kind"].startswith(prefix))


@pytest.mark.parametrize("kind", ["row", "head", "payload"])
@given(data=st.data())
def test_proof_fails_under_other_root_or_recipient(kind: str, data: st.DataObject) -> None:
    _, proved, _ = data.draw(DOCUMENTS[kind])
    assert verify(kind, {**proved, "root": HASH})["ok"] is False
    if kind != "payload":
        other = (proved["recipient"] + data.draw(st.integers(1, 9))) % 2**32
        assert verify(kind, {**proved, "recipient": other})["ok"] is False


@pytest.mark.parametrize("kind", DOCUMENTS)
@given(
    data=st.data(),
    garbage=st.recursive(ODD, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner)),
)
def test_garbage_is_rejected(kind: str, data: st.DataObject, garbage: Any) -> None:
    _, proved, _ = data.draw(DOCUMENTS[kind].filter(lambda drawn: drawn[1]["proof"]))
    proved["proof"] = garbage
    assert verify(kind, proved)["ok"] is False


@pytest.mark.parametrize(
    ("change", "expected"), [forgery[1:] for forgery in FORGERIES], ids=[each[0] for each in FORGERIES]
)
def test_forgery_is_rejected_as_in_vectors(change: Any, expected: Json) -> None:
    entry = world()
    change(entry)
    assert verify("processing", entry) == expected


# --- malformed input ---


COLUMN = {"recipient": 1, "last_updated": 2, "message_root": None}


@pytest.mark.parametrize(
    ("kind", "document", "message"),
    [
        ("row", [], "document: expected an object, found []"),
        ("row", {"row": [COLUMN]}, "document: key 'index' is missing"),
        ("row", {"row": [COLUMN], "indx": 0}, "document: unknown key 'indx', did you mean 'index'?"),
        ("row", {"row": [COLUMN], "index": 1}, "document.index: expected the index of one of 1, found 1"),
        ("row", {"row": [], "index": 0}, "document.index: expected the index of one of 0, found 0"),
        ("row", {"row": [{"recipient": 1}], "index": 0}, "document.row[0]: key 'last_updated' is missing"),
        (
            "row",
            {"row": [COLUMN, COLUMN], "index": 0},
            "document.row[1].recipient: expected a recipient that no column before has, found 1",
        ),
        (
            "row",
            {"row": [{**COLUMN, "message_root": "00"}], "index": 0},
            'document.row[0].message_root: expected 32 bytes in hex, found "00"',
        ),
        ("head", {"heads": {"1": HASH}, "recipient": 2}, "document.recipient: expected a para that has a head, found 2"),
        (
            "head",
            {"heads": {"01": HASH}, "recipient": 1},
            'document.heads.01: expected an integer from 0 to 4294967295, found "01"',
        ),
        (
            "head",
            {"heads": {"4294967296": HASH}, "recipient": 1},
            "document.heads.4294967296: expected an integer from 0 to 4294967295, found 4294967296",
        ),
        ("payload", {"payloads": ["0"], "index": 0}, 'document.payloads[0]: expected bytes in hex, an even number of digits, found "0"'),
        ("payload", {"payloads": {}, "index": 0}, "document.payloads: expected an array, found {}"),
        ("payload", {"payloads": [""], "index": True}, "document.index: expected an integer from 0 to 4294967295, found true"),
    ],
)  # fmt: skip
def test_unprovable_document_is_rejected_in_one_line(kind: str, document: Any, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        prove(kind, document)
    assert str(refusal.value) == message


REFUSED = 'document: expected histories whose proof holds, found "'


def processing() -> Json:
    """Return the document of a proof about a sender with two messages, the second not due."""
    sender = Sender(1, [(3, [b"a"]), (5, [b"b"])], before=1)
    entry = entry_of([sender], None, [4, 0], 9)
    return {"context": entry["context"], "histories": {"1": history(sender)}}


def at(document: Json, path: str, value: Any) -> None:
    *way, last = path.split(".")
    node: Any = document
    for name in way:
        node = node[int(name)] if isinstance(node, list) else node[name]
    node[int(last) if isinstance(node, list) else last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("context.relay_parent_number", 3, REFUSED + "Pov/AheadRelayParent()"),
        ("context.cst_roots", {"1": HASH}, REFUSED + "Pov/CstProofInvalid(sender=1)"),
        ("histories.1.messages.0.payloads", [], REFUSED + "Pov/ChainBroken(sender=1, depth=0)"),
        ("histories.1.heads.4", HASH, REFUSED + "Pov/MqProofInvalid(sender=1)"),
        ("context.new_watermark", [4], "document.context.new_watermark: expected [block, para], found [4]"),
        ("context.senders", [1, 2], "document.histories: expected a history of sender 2, found {\"1\":"),
        ("context.senders", [], "document.histories.1: expected nothing, as this is none of the context's senders, found {"),
        ("context.recipient", 8, "document.histories.1.row: expected columns with one to recipient 8, found [{"),
        ("histories.1.heads", {}, "document.histories.1: expected heads with one of recipient 4, for whom something is unread, found {"),
        ("histories.1.messages.1.block", 3, "document.histories.1.messages[1].block: expected a block after 3, found 3"),
        ("histories.1.base_block", 3, "document.histories.1.messages[0].block: expected a block after 3, found 3"),
        ("histories.1.base_head", "00", 'document.histories.1.base_head: expected 32 bytes in hex, found "00"'),
        ("histories.1.message", [], "document.histories.1: unknown key 'message', did you mean 'messages'?"),
        ("context.old_watermrk", None, "document.context: unknown key 'old_watermrk', did you mean 'old_watermark'?"),
        ("histories.one", {"row": []}, "document.histories.one: expected an integer from 0 to 4294967295, found \"one\""),
    ],
)  # fmt: skip
def test_unprovable_processing_is_rejected_in_one_line(path: str, value: Any, message: str) -> None:
    document = processing()
    assert verify("processing", prove("processing", document)) == {"ok": True, "messages": [[3, 1, ["61"]]]}
    at(document, path, value)
    with pytest.raises(UserError) as refusal:
        prove("processing", document)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("kind", DOCUMENTS)
@given(data=st.data())
def test_trusted_values_are_checked_whatever_proof_claims(kind: str, data: st.DataObject) -> None:
    _, proved, _ = data.draw(DOCUMENTS[kind])
    known = [name for name in proved if name != "proof"]
    assert known
    for name in known:
        without = {key: value for key, value in proved.items() if key != name}
        for document in (without, {**without, "proof": None}):
            with pytest.raises(UserError, match=f"key '{name}' is missing"):
                verify(kind, document)
        for odd in (None, -1, 2**32, 1.5, True, "00", [], "zz" * 32):
            with pytest.raises(UserError, match=f"^document.{name}: expected "):
                verify(kind, {**proved, name: odd})


@examples(200)
@given(drawn=accounts(), data=st.data())
def test_changed_document_is_proved_or_rejected_in_one_line(
    drawn: tuple[list[Sender], Json], data: st.DataObject
) -> None:
    senders, entry = drawn
    document = {"context": entry["context"], "histories": {str(sender.para): history(sender) for sender in senders}}
    document = deepcopy(document)
    change_somewhere(document, data)
    try:
        proved = prove("processing", document)
    except UserError as error:
        message = str(error)
    else:
        message = ""
        assert verify("processing", proved)["ok"] is True
    assert "\n" not in message


# --- the README ---


def test_readme_commands_print_shown_output(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    session = text.partition("```console\n")[2].partition("```")[0]
    commands = [part.partition("\n") for part in session.split("$ ")[1:]]
    assert len(commands) >= 4
    folder = Path(sys.executable).parent
    for command, _, shown in commands:
        done = subprocess.run(
            command,
            check=False,
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PATH": f"{folder}:/usr/bin:/bin"},
        )
        assert done.stdout + done.stderr == shown, command
