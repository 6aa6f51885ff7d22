# SPDX-License-Identifier: Apache-2.0
"""Every request whose errors librdkafka returns to its caller goes through `validator.kafka.retry`."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]

ASKING: Final = {
    "list_topics", "list_offsets", "get_watermark_offsets", "committed", "offsets_for_times", "list_groups",
    "alter_user_scram_credentials", "init_transactions", "delete_topics", "describe_configs", "describe_topics",
}  # fmt: skip
"""Methods of librdkafka's clients. It retries producing, fetching and committing by itself."""


def unanswered(text: str) -> Iterator[str]:
    """Yield the requests of a module that are outside of every question to `answer`."""
    tree = ast.parse(text)
    questions = [
        node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "answer" and node.args
    ]
    named = {_name(question) for question in questions}
    inside = {id(node) for question in questions for node in ast.walk(question)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name in named:
            inside |= {id(node) for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ASKING and id(node) not in inside:
            yield f"{node.lineno}: {node.attr}"


def _name(question: ast.expr) -> str | None:
    """Return the name of the function that is the question: itself, a method, or the first argument of `partial`."""
    match question:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id="partial"), args=[first, *_]):
            return _name(first)
        case _:
            return None


def test_each_request_is_asked_again_after_errors_that_pass() -> None:
    found = {
        str(path.relative_to(ROOT)): [*unanswered(text)]
        for folder in ("validator", "streaming", "plugins")
        for path in (ROOT / folder).rglob("*.py")
        if "tests" not in path.parts and "confluent_kafka" in (text := path.read_text(encoding="utf-8"))
    }
    assert {path: calls for path, calls in found.items() if calls} == {}
    assert len(found) > 10


OFFSETS: Final = {"list_offsets", "get_watermark_offsets", "offsets_for_times", "committed", "position"}
"""Methods whose answers look like offsets, also where they are none."""

KNOWS_OFFSETS: Final = "validator/kafka/retry.py"


def offset_calls(text: str) -> Iterator[str]:
    """Yield the calls of these methods, on whatever is called like a client."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OFFSETS:
            of = node.func.value
            name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
            if node.func.attr not in {"committed", "position"} or CLIENT.search(name):
                yield f"{node.lineno}: {node.func.attr}"


CLIENT: Final = re.compile(r"consumer|client|admin|^_?(any|settled|member)$")
"""Names of clients: other things have positions, too."""


def test_offsets_are_asked_in_one_place() -> None:
    found = {
        str(path.relative_to(ROOT)): [*offset_calls(path.read_text(encoding="utf-8"))]
        for folder in ("validator", "streaming", "plugins")
        for path in (ROOT / folder).rglob("*.py")
        if "tests" not in path.parts
    }
    assert {path for path, calls in found.items() if calls} == {KNOWS_OFFSETS}


ABORTING: Final = {
    "describe_consumer_groups", "list_consumer_group_offsets", "alter_consumer_group_offsets", "delete_consumer_groups",
    "delete_consumer_group_offsets",
}  # fmt: skip
"""Requests that librdkafka sends to a coordinator. If their time runs out before the coordinator can be reached, the process aborts
(an assertion in `rd_kafka_enq_once_del_source_return`)."""


def test_no_request_is_made_that_can_abort_the_process() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}"
        for folder in ("validator", "streaming", "plugins")
        for path in (ROOT / folder).rglob("*.py")
        if "tests" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ABORTING
    ]
    assert found == []
