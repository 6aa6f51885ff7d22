# SPDX-License-Identifier: Apache-2.0
"""Every command of README, docs/ and examples/ is run by a test of its page, or has a reason why not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import DOCS, blocks, commands

ROOT = DOCS.parent
TESTS = Path(__file__).parent
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").glob("*/README.md")])

NOT_RUN: Final = {
    "docker build --tag validator .": "tests/deploy/ runs what the image runs",
    "docker compose up -d --build": "tests/deploy/ runs what the services run",
    "mkdir -p .validator && openssl rand -hex 16 > .validator/grafana-admin": "the next command needs it",
    "docker compose --profile console --profile monitoring up -d": "the same",
    "cp -r deploy/kubernetes/example deploy/kubernetes/mine": "tests/deploy/ builds the example itself",
    "kubectl kustomize deploy/kubernetes/mine": "the same",
    "kubectl apply --kustomize deploy/kubernetes/mine": "it needs a cluster; tests/deploy/ checks the manifests",
    "kubectl --namespace validator logs deployment/validator-console": "the same",
    "kubectl --namespace validator port-forward service/validator-console 8480": "the same",
    **dict.fromkeys(
        (
            "kubectl apply --kustomize deploy/kubernetes/strimzi",
            "kubectl --namespace kafka get secret kafka-cluster-ca-cert --output jsonpath='{.data.ca\\.crt}' | base64 --decode > ca.crt",
            "kubectl --namespace validator create configmap kafka-ca --from-file ca.crt",
            "kubectl --namespace kafka get secret validator-job --output jsonpath='{.data.password}' | base64 --decode > password",
            "kubectl --namespace validator create secret generic validator-kafka --from-file VALIDATOR_KAFKA__SASL__PASSWORD=password",
            "rm password",
            "helm install validator deploy/helm/validator --namespace validator --create-namespace --values mine.yaml",
        ),
        "it needs a cluster; tests/deploy/ checks the manifests and the chart",
    ),
    **dict.fromkeys(
        (
            "python3 -m venv --copies environment",
            "make dist",
            "environment/bin/pip install --no-deps --require-hashes --requirement dist/build.txt",
            "environment/bin/pip install --no-deps --no-build-isolation --require-hashes --requirement dist/requirements.txt",
            (
                "environment/bin/pip install --no-index --find-links dist 'relay-validator[spark]' "
                "validator-hrmp-calls validator-balances validator-remark"
            ),
            "tar cf environment.tar.gz --use-compress-program 'gzip -1' -C environment .",
        ),
        "tests/deploy/test_dist.py runs the same; tests/streaming/standalone.py packs an environment that has its packages elsewhere",
    ),
    **dict.fromkeys(
        (
            "spark-class org.apache.spark.deploy.master.Master --host spark-master --port 7077 --properties-file cluster.conf",
            (
                "spark-class org.apache.spark.deploy.worker.Worker --cores 2 --memory 4g --work-dir /var/lib/spark "
                "--properties-file cluster.conf spark://spark-master:7077"
            ),
            "export SPARK_CONF_DIR=/etc/validator/spark",
            "validator topics create",
            "validator run",
        ),
        "tests/streaming/standalone.py starts the same classes, and tests/streaming/test_standalone.py runs the job on them",
    ),
    "python add_partitions.py 4 validator.blocks validator.candidates": "tests/added_partitions.py makes the same call",
    "validator topics list": "tests/cli/ runs it",
    "validator export journeys --parquet journeys": "the same for messages: tests/cli/test_messages.py",
    "validator export verdicts --parquet verdicts": "it needs a topic; tests/cli/test_parquet.py runs it, and the query on what it writes",
    "make demo": "tests/cli/test_demo.py runs `validator demo`; make sets up this very environment",
    "make demo-real": "tests/cli/test_demo.py runs what it runs",
    "make demo-channel": "tests/channel/test_demo.py runs examples/channel/demo.py",
    "git pull": "the tests run what is there",
    "make setup": "make sets up this very environment",
    "make test": "it would run itself",
    "validator console": "it runs until Ctrl-C; tests/console/test_serve.py runs what it runs",
    "validator demo --real": "tests/cli/test_demo.py runs it",
    "validator follow --lane polkadot": "it needs a live node; tests/streaming/test_relay_chain.py runs the transport with a mock node",
    **dict.fromkeys(
        (
            "mkdir schemas",
            "validator schemas show Verdict > schemas/1.avsc",
            "mvn -f java dependency:copy-dependencies -DoutputDirectory=../lib",
            "validator broker settings --java --output java.properties",
            'java -cp "lib/*" java/Verdicts.java java.properties my-group schemas --para 2000 --count 10',
            "validator broker settings --output broker.properties",
            "go -C go build -o ../verdicts",
            "./verdicts -para 2000 -count 10 broker.properties my-group schemas",
        ),
        "tests/examples/test_consumers.py compiles and runs these programs, with the jars that the pom names",
    ),
    "validator watch verdicts --follow": "it runs until Ctrl-C; tests/cli/test_watch.py runs it",
}
"""Commands that no page's test runs, each with its reason."""

ELSEWHERE: Final = {
    "http.md": "tests/serve/test_page.py",
    "journeys.md": "tests/journeys/test_up.py",
    "xcmp-bodies.md": "tests/bodies/test_docs.py",
    "xcmp-networking.md": "plugins/simulators/tests/test_network_reference.py",
}
"""Pages whose commands are run by a test in another folder."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_is_run_or_has_a_reason(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = blocks(text)
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(found), "a block has no language"
    assert not [block for block in found if block.language in {"sh", "bash", "shell"}], "commands are `console` blocks"
    shown = [each.plain() for block in found if block.language == "console" for each in commands(block)]
    if [line for line in shown if line not in NOT_RUN] and page.name not in ELSEWHERE:
        running = [
            path.name for path in TESTS.glob("test_*.py") if f'"{page.name}"' in path.read_text(encoding="utf-8")
        ]
        assert set(running) - {Path(__file__).name}, f"no test in {TESTS.name} runs the commands of {page.name}"
