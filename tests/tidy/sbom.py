# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.tidy.sbom`: writes a bill of materials of what `make setup` installs, in CycloneDX 1.6 JSON.

It lists the Python distributions of this environment that requirements.txt pins, and the jars; its subject are this project's own
distributions. Hashes come from requirements.txt, one for each archive that an installation may take, since pip checks them and keeps none.
Jars are checked against theirs whenever they are fetched. The same environment gives the same bytes.
"""

from __future__ import annotations

import json
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import typer
from packaging.utils import canonicalize_name

from tests.tidy.requirements import Pin, own, pins
from tests.tidy.tree import ROOT
from validator import DISTRIBUTION, __version__

IVY = ROOT / "validator" / "kafka" / "ivy"

OWN = [{"expression": "Apache-2.0"}]

SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "GPL-3.0": "GPL-3.0-only",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Identifiers of what the metadata of distributions say otherwise."""

READ = {
    "colorama": "BSD-3-Clause",
    "contourpy": "BSD-3-Clause",
    "cycler": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "jsonlines": "BSD-3-Clause",
    "kiwisolver": "BSD-3-Clause",
    "matplotlib": "LicenseRef-matplotlib",
    "pandas": "BSD-3-Clause",
    "promql-parser": "MIT",
    "py4j": "BSD-3-Clause",
    "quixstreams": "Apache-2.0",
}
"""Licences that were read in the archives, because metadata have no name of them."""

JARS = {
    "HdrHistogram": "BSD-2-Clause OR CC0-1.0",
    "argparse4j": "MIT",
    "jopt-simple": "MIT",
    "pcollections": "MIT",
    "re2j": "BSD-3-Clause",
    "slf4j-api": "MIT",
    "zstd-jni": "BSD-2-Clause",
}
"""Licences of jars other than Apache-2.0, by their poms."""


def bill(installed: list[Distribution]) -> dict[str, Any]:
    """Return the document."""
    pinned = pins()
    found = {canonicalize_name(each.metadata["Name"]): each for each in installed}
    components = [_distribution(name, found[name], pinned[name]) for name in sorted(found.keys() & pinned.keys())]
    for path in sorted(IVY.glob("*.sha256")):
        components += _jars(path)
    subject = {
        "type": "application", "bom-ref": DISTRIBUTION, "name": DISTRIBUTION, "version": __version__, "licenses": OWN,
        "components": [
            {"type": "library", "bom-ref": name, "name": name, "version": found[name].version, "licenses": OWN}
            for name in own() if name in found and name != DISTRIBUTION
        ],
    }  # fmt: skip
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
    }


def _distribution(name: str, of: Distribution, pinned: Pin) -> dict[str, Any]:
    """Return a component; its hashes are there if its version is the pinned one."""
    purl = f"pkg:pypi/{name}@{of.version}"
    hashes = sorted(pinned.hashes) if pinned.pin.partition("==")[2] == of.version else []
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": of.version, "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
        "licenses": [{"expression": _licence(name, of)}],
    }  # fmt: skip


def _licence(name: str, of: Distribution) -> str:
    """Return an expression of SPDX: the one of the metadata, or what else they say."""
    if name in READ:
        return READ[name]
    if expression := of.metadata["License-Expression"]:
        return str(expression)
    said = [
        of.metadata["License"],
        *(each.rpartition(" :: ")[2] for each in of.metadata.get_all("Classifier") or () if each.startswith("License")),
    ]
    known = {*SPDX.values(), "Apache-2.0"}
    return next((SPDX.get(each, each) for each in said if each and (each in SPDX or each in known)), "NOASSERTION")


def _jars(path: Path) -> list[dict[str, Any]]:
    sums = {name: digest for digest, name in (line.split("  ") for line in path.read_text("ascii").splitlines())}
    tree = ElementTree.parse(path.with_suffix(".xml"))
    components = []
    for jar in tree.iter("dependency"):
        group, name, version = jar.attrib["org"], jar.attrib["name"], jar.attrib["rev"]
        purl = f"pkg:maven/{group}/{name}@{version}"
        digest = next(digest for file, digest in sums.items() if file.startswith(f"{name}-{version}"))
        components.append({
            "type": "library", "bom-ref": f"{path.stem}:{purl}", "group": group, "name": name, "version": version, "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": digest}], "licenses": [{"expression": JARS.get(name, "Apache-2.0")}],
        })  # fmt: skip
    return components


def main(out: Annotated[Path, typer.Option(help="The file to write.")] = ROOT / "build" / "sbom.json") -> None:
    """Write the bill of materials of this environment."""
    document = bill(list(distributions()))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    components = document["components"]
    without = [
        each["name"] for each in components if not each["hashes"] or each["licenses"] == [{"expression": "NOASSERTION"}]
    ]
    typer.echo(f"{out}: {len(components)} components, without hash or licence: {', '.join(without) or 'none'}")


if __name__ == "__main__":
    typer.run(main)
