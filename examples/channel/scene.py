# SPDX-License-Identifier: Apache-2.0
"""What stands around the peers: keys, registry, configuration, broker, job and gateway, all made with the commands that a person uses."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validator_channel.client import ClientConfig, load_config

from validator.config.toml import to_toml

BIN = Path(sys.executable).parent
SESSION_MS = 6_000
"""Milliseconds after which Kafka gives up a gateway that was killed: the least that a broker allows, since this is a demonstration."""


@dataclass
class PeerFiles:
    """A peer: its name, the paras that it speaks for (None: all), its IDs, and the file with its client's configuration."""

    name: str
    paras: Sequence[int] | None
    peer: str = ""
    gateway: str = ""
    config: Path = field(default_factory=Path)

    def client_config(self, port: int) -> ClientConfig:
        """Return the configuration of its client, with the gateway on another port."""
        return load_config(self.config, {"gateways": [f"127.0.0.1:{port}"]})


class Scene:
    """A folder with everything; `start` brings it up, `stop` takes it down. ``say`` gets a line about each step."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.gateway_restarts = 0
        self._say = say
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("VALIDATOR_")}
        self._up: subprocess.Popen[str] | None = None
        self._gateway: subprocess.Popen[str] | None = None
        self.job_ready, self.listening = threading.Event(), threading.Event()
        self.lines: list[str] = []
        self._stopping = False

    # --- files ---

    def prepare(self, peers: Sequence[PeerFiles], chains: Mapping[str, Any], lane: str) -> None:
        """Make keys and certificates, and write `peers.toml`, `validator.toml` and a configuration for each peer."""
        self._run("validator-channel", "keys", "new-ca", "ca")
        for peer in peers:
            made = json.loads(self._run("validator-channel", "keys", "new-channel", "--json"))
            peer.peer, peer.gateway = made["peers"]
            self._run("validator-channel", "keys", "issue", peer.name, "--ca", "ca", "--peer", peer.peer)
        names = [part for peer in peers for part in ("--peer", peer.gateway)]
        self._run("validator-channel", "keys", "issue", "gateway", "--ca", "ca", "--ip", "127.0.0.1", *names)
        (self.folder / "peers.toml").write_text(to_toml({"peers": {each.name: _entry(each, lane) for each in peers}}))
        self._run("validator-channel", "registry", "peers.toml")
        for peer in peers:
            peer.config = self.folder / f"{peer.name}.toml"
            peer.config.write_text(to_toml(self._client(peer)))
        transport = {
            "listen": f"127.0.0.1:{self.port}",
            "certificate": "gateway.crt",
            "key": "gateway.key",
            "ca": "ca/ca.crt",
        }
        transport |= {"crl": "ca/ca.crl", "registry": "peers.toml"}
        tables = {"kafka": {"session.timeout.ms": SESSION_MS}, "transports": {"channel": transport}}
        tables |= {"job": {"directory": str(self.folder / "job")}, "chains": dict(chains)}
        (self.folder / "validator.toml").write_text(to_toml(tables))

    def _client(self, peer: PeerFiles) -> dict[str, Any]:
        files = {"certificate": f"{peer.name}.crt", "key": f"{peer.name}.key", "ca": "ca/ca.crt"}
        return {"gateways": [f"127.0.0.1:{self.port}"], "peer": peer.peer, "gateway": peer.gateway, **files}

    # --- processes ---

    def start(self) -> None:
        """Start broker, job and gateway; `job_ready` and `listening` are set when they are."""
        self._say("starting Kafka and the job (validator up)")
        self._up = self._spawn("up", "--json", watch=self._take_up)
        threading.Thread(target=self._keep_gateway, daemon=True).start()

    def stop(self) -> None:
        """Stop the gateway, then job and broker."""
        self._stopping = True
        for process in (self._gateway, self._up):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()

    def kill_gateway(self) -> None:
        """Kill the gateway as a failing machine would; it is started again."""
        if self._gateway is not None:
            self._gateway.kill()

    def problem(self) -> str | None:
        """Return why nothing more can happen, or None."""
        if self._up is not None and self._up.poll() is not None and not self._stopping:
            return "the job has ended: " + " | ".join(self.lines[-5:])
        return None

    def _keep_gateway(self) -> None:
        """Run the gateway, and run it again when it dies, as a supervisor does."""
        while not self._stopping:
            if not (self.folder / "topics").exists():
                time.sleep(0.1)
                continue
            self._gateway = self._spawn("transport", "run", "channel", watch=self._take_gateway)
            self._gateway.wait()
            self.listening.clear()
            self._environment.pop("CHANNEL_DIES", None)
            if not self._stopping:
                self.gateway_restarts += 1
                self._say(f"the gateway has ended with {self._gateway.returncode} and is started again")

    def _spawn(self, *arguments: str, watch: Callable[[str], None]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(BIN / "validator"), *arguments], cwd=self.folder, env=self._environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                self.lines.append(line.rstrip("\n"))
                watch(line)

        threading.Thread(target=read, daemon=True).start()
        return process

    def _take_up(self, line: str) -> None:
        event = json.loads(line).get("event") if line.startswith("{") else None
        if event == "topics":
            self._say("Kafka answers, and its topics exist")
            (self.folder / "topics").touch()
        if event == "ready":
            self._say("the job is ready")
            self.job_ready.set()

    def _take_gateway(self, line: str) -> None:
        if re.search(r"listening on", line):
            self._say(f"the gateway listens on port {self.port}")
            self.listening.set()

    def _run(self, command: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(BIN / command), *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command} {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


def _entry(peer: PeerFiles, lane: str) -> dict[str, Any]:
    """Return a peer's table in the registry: teams speak for their paras, the relay chain's node for everything."""
    table: dict[str, Any] = {
        "peer": peer.peer,
        "gateway": peer.gateway,
        "watch": ["verdicts"],
        "submit": ["candidates"],
    }
    if peer.paras is None:
        table["submit"] = ["candidates", "channel-requests", "blocks", "downward-messages"]
        table |= {"grants": ["relay-chain", "root-requests"], "records_per_s": 100_000, "burst": 100_000}
    return {**table, "lanes": {lane: "all" if peer.paras is None else list(peer.paras)}}
