# SPDX-License-Identifier: Apache-2.0
"""A mistake on the command line of `validator messages` is one line, before anything is read from Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.follower import invoke

CONFIG = '[kafka]\n"bootstrap.servers" = "127.0.0.1:9"\n[chains.polkadot]\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("follow", "--chain", "polkadot", "--para", "2", "--after", "5"), "--after: expected BLOCK/SENDER, found '5'"),
        *(
            (
                ("follow", "--chain", "polkadot", "--para", "2", "--after", after),
                "--after: expected BLOCK/SENDER, found",
            )
            for after in ("9" * 5_000 + "/1", "4294967296/1", "5/1/1", "\uff15/1", "-1/0", "5/ 1", "/")
        ),
        (("follow", "--chain", "polkadt", "--para", "2"), "--chain: expected one of polkadot, found 'polkadt'"),
        (("send", "--chain", "polkadt", "--para", "2", "{bad}"), "--chain: expected one of polkadot, found 'polkadt'"),
        (
            ("send", "--chain", "polkadot", "--para", "2", "{bad}"),
            "line 2: expected a list of payloads in hex, found {}",
        ),
        (("send", "--chain", "polkadot", "--para", "2", "{none}"), "cannot be read"),
        (
            ("reports", "--chain", "polkadt", "--block", "2", "--position", "{none}"),
            "--chain: expected one of polkadot",
        ),
        (("reports", "--chain", "polkadot", "--block", "2", "--position", "{bad}"), "expected a position that"),
        (("run",), "[jobs.xcmp-bodies] chains: no chain has protocol 'xcmp-network': name the chains that have bodies"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "validator.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "bad").write_text('["00"]\n{}\n', encoding="utf-8")
    names = {"{bad}": str(tmp_path / "bad"), "{none}": str(tmp_path / "none")}
    line = (names.get(each, each) for each in arguments)
    done = invoke("messages", *line, f"--config={tmp_path / 'validator.toml'}")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


@pytest.mark.parametrize(
    ("named", "line"),
    [
        ("polkadt", "no chain 'polkadt' is configured; did you mean 'polkadot'?"),
        ("x", "no chain 'x' is configured; configured are polkadot"),
    ],
)
def test_transport_of_an_unknown_chain_is_refused(named: str, line: str, tmp_path: Path) -> None:
    config = tmp_path / "validator.toml"
    inbox = f'[transports.xcmp-bodies.paras."{named}/2000"]\ninbox = "{tmp_path / "inbox"}"\n'
    config.write_text(CONFIG + inbox, encoding="utf-8")
    done = invoke("transport", "run", f"xcmp-bodies.{named}-2000", f"--config={config}")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith(f": transport xcmp-bodies.{named}-2000: {line}\n")


def test_status_refuses_an_alarm_that_is_no_number(tmp_path: Path) -> None:
    config = tmp_path / "validator.toml"
    config.write_text(f'{CONFIG}[jobs.xcmp-bodies]\nalarm_blocks = "x"\n', encoding="utf-8")
    done = invoke("messages", "status", "--check", f"--config={config}")
    assert (done.exit_code, done.stderr) == (
        2,
        "validator: [jobs.xcmp-bodies] alarm_blocks: expected 1 to 4294967295, found 'x'\n",
    )
