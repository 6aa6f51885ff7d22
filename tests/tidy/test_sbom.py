# SPDX-License-Identifier: Apache-2.0
"""The bill of materials lists what is installed."""

from __future__ import annotations

import json
import re
from importlib.metadata import distributions

from packaging.utils import canonicalize_name

from tests.tidy.sbom import ROOT, archive_hashes, bill


def pins() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text("ascii").splitlines()
    return {
        f"{canonicalize_name(line.partition('==')[0])}=={line.partition('==')[2]}"
        for line in lines
        if line and not line.startswith("#")
    }


def test_every_pin_has_a_hash() -> None:
    hashes = archive_hashes()
    assert set(hashes) == pins()
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in hashes.values())


def test_the_bill_lists_distributions_and_jars() -> None:
    document = bill(list(distributions()))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    components = {each["bom-ref"]: each for each in document["components"]}
    assert len(components) == len(document["components"])
    hashes = archive_hashes()
    for each in components.values():
        pin = f"{each['name']}=={each['version']}"
        if pin in hashes and "group" not in each:
            assert each["hashes"] == [{"alg": "SHA-256", "content": hashes[pin]}]
    jars = [each for each in components.values() if "group" in each]
    assert len(jars) > 40
    assert all(each["hashes"] for each in jars)
    assert json.dumps(document) == json.dumps(bill(list(distributions())))
    assert any(each["name"] == "fastavro" and each["hashes"] for each in components.values())
