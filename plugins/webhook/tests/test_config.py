# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the table and in requests are one line that names the field."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_webhook.config import Configuration, Configured, Definition, parse_definition
from webhook_world import Running, memory_of, running

from validator.plugin.api import RecordFilter
from validator.plugin.registry import PluginError
from validator.testing.transport import MemoryTransport

GOOD: dict[str, Any] = {"url": "https://example.com/", "topics": ["verdicts"], "secret_file": "x"}


def error_of(table: dict[str, Any]) -> str:
    with pytest.raises(PluginError) as raised:
        MemoryTransport("webhook", table)
    return str(raised.value)


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({}, "expected a subscription in subscriptions, or token_file to make some over HTTP, found neither"),
        ({"token_file": "t"}, "secret_file: expected the secret from which those of subscriptions made over HTTP are derived"),
        ({"token_file": "t", "token_env": "T", "secret_env": "S"}, "expected token_file or token_env, found both"),
        ({"subscriptions": {"a": GOOD}, "allow_networks": ["x"]}, "allow_networks: expected networks such as 10.1.0.0/16, found 'x'"),
        ({"subscriptions": {"a": GOOD}, "timeout_seconds": 61}, "timeout_seconds: expected more than 0 and at most 60, found 61"),
        ({"subscriptions": {"a": GOOD}, "park_after_seconds": 0},
         "park_after_seconds: expected more than 0 and at most 2.592e+06, found 0"),
        ({"subscriptions": {"a": GOOD}, "listen": "8481"}, "listen: expected HOST:PORT, such as 127.0.0.1:8481, found '8481'"),
        ({"subscriptions": {"h-1": GOOD}}, "that do not begin with h-, found 'h-1'"),
        ({"subscriptions": {"A": GOOD}}, "expected names of 1 to 40 of a-z 0-9 _ -"),
        ({"subscriptions": {"a": GOOD | {"url": "http://example.com/"}}},
         "subscriptions.a: url: expected https, found 'http'; allow_http allows http"),
        ({"subscriptions": {"a": GOOD | {"url": "https://10.0.0.1/"}}},
         "subscriptions.a: url: 10.0.0.1 is an address of a private network"),
        ({"subscriptions": {"a": {**GOOD, "secret_env": "S"}}}, "expected secret_file or secret_env, one of them"),
        ({"subscriptions": {"a": GOOD | {"topics": []}}}, "topics: expected 1 to 16, found 0"),
        ({"subscriptions": {"a": GOOD | {"lane": "a\nb"}}}, "lane: expected a line of 1 to 200 printable characters"),
        ({"subscriptions": {"a": GOOD | {"lan": "polkadot"}}}, "lan"),
        ({"subscriptions": {"a": GOOD | {"start": "later"}}}, "start"),
    ],
)  # fmt: skip
def test_mistakes_in_the_table(table: dict[str, Any], error: str) -> None:
    found = error_of(table)
    assert error in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([], "expected a JSON object with url and topics"),
        ({"topics": ["verdicts"]}, "url: Field required"),
        ({"url": "https://example.com/"}, "topics: Field required"),
        ({"url": "https://example.com/", "topics": ["verdicts"], "para": "x"}, "para: Input should be a valid integer"),
        ({"url": "https://example.com/", "topics": ["verdicts"], "secret": "x"}, "secret: Unexpected keyword argument"),
        ({"url": "https://example.com/", "topics": "verdicts"}, "topics: Input should be a valid tuple"),
        ({"url": "https://example.com/", "topics": []}, "topics: expected 1 to 16, found 0"),
    ],
)
def test_mistakes_in_requests(values: object, error: str) -> None:
    with pytest.raises(ValueError, match=r"[a-z]") as raised:
        parse_definition(values)
    assert str(raised.value).startswith(error)


def test_definition_keeps_its_form() -> None:
    values = {
        "url": "https://example.com/",
        "topics": ["verdicts", "dispatches"],
        "para": 7,
        "rejected": True,
        "start": "beginning",
    }
    definition = parse_definition(values)
    assert definition.to_json() == values
    assert parse_definition(definition.to_json()) == definition
    assert definition.wanted == RecordFilter(para=7, rejected=True)
    assert Configured(**(values | {"topics": ("verdicts", "dispatches")}), secret_file="x").definition == definition


def test_listens_on_loopback_by_default() -> None:
    assert Configuration(token_env="T", secret_env="S").address == ("127.0.0.1", 8481)
    assert Configuration(token_env="T", secret_env="S", listen="[::1]:0").address == ("::1", 0)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
)


@given(
    st.dictionaries(st.sampled_from([each.name for each in fields(Definition)]) | st.text(), _VALUES)
    | _VALUES
    | st.fixed_dictionaries({"url": st.text(), "topics": st.lists(st.text())})
)
def test_any_json_is_a_definition_or_a_value_error(values: object) -> None:
    try:
        definition = parse_definition(values)
    except ValueError:
        return
    assert parse_definition(definition.to_json()) == definition


def test_topics_of_jobs_may_be_subscribed_to(tmp_path: Path) -> None:
    wanted = {"alerts": {"url": "https://example.com/", "topics": ["xcmp.queues"]}}
    with running(memory_of(tmp_path, wanted, {"polkadot": "xcmp-network"}, jobs=["xcmp-bodies"])) as run:
        assert run.state("alerts")["next"] == {"xcmp.queues/0": 0}
    with pytest.raises(
        ValueError, match=r"^subscriptions.alerts: topic: expected one of verdicts, .*found 'xcmp.queues'"
    ):
        Running(memory_of(tmp_path, wanted))
