# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.tidy.sbom`: writes a bill of materials of what `make setup` installs, in CycloneDX 1.6 JSON.

It lists the Python distributions of this environment and the jars. Hashes of distributions come from `constraints.sha256`: the archives
that this project was tested with, for CPython 3.11 on Linux x86-64. Archives of other platforms have other hashes. Jars are checked against
theirs whenever they are fetched. The same environment gives the same bytes.
"""

from __future__ import annotations

import json
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import typer
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
HASHES = ROOT / "constraints.sha256"
IVY = ROOT / "validator" / "kafka" / "ivy"


def archive_hashes(text: str | None = None) -> dict[str, str]:
    """Return the SHA-256 of each archive in `constraints.sha256`, by ``name==version``."""
    lines = (HASHES.read_text("ascii") if text is None else text).splitlines()
    return {pin: digest for digest, pin in (line.split("  ") for line in lines if line and not line.startswith("#"))}


def bill(installed: list[Distribution]) -> dict[str, Any]:
    """Return the document."""
    hashes = archive_hashes()
    found = {canonicalize_name(each.metadata["Name"]): each for each in installed}
    components = [_distribution(name, found[name], hashes) for name in sorted(found)]
    for path in sorted(IVY.glob("*.sha256")):
        components += _jars(path)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "validator", "name": "validator"}},
        "components": components,
    }


def _distribution(name: str, of: Distribution, hashes: dict[str, str]) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{of.version}"
    component: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": of.version, "purl": purl}
    if digest := hashes.get(f"{name}=={of.version}"):
        component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if expression := of.metadata["License-Expression"]:
        component["licenses"] = [{"expression": expression}]
    return component


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
            "hashes": [{"alg": "SHA-256", "content": digest}],
        })  # fmt: skip
    return components


def main(out: Annotated[Path, typer.Option(help="The file to write.")] = ROOT / "build" / "sbom.json") -> None:
    """Write the bill of materials of this environment."""
    document = bill(list(distributions()))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    components = document["components"]
    hashed = sum("hashes" in each for each in components)
    typer.echo(f"{out}: {len(components)} components, {hashed} with the hash of their archive")


if __name__ == "__main__":
    typer.run(main)
