# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs: they add the pages and files that stand outside of `docs/`, and make headings' anchors those of the pages' links.

Pages link to each other, to README.md, to plugins and to modules. Outside of `docs/`, what is made to be read becomes a page of the site,
and any other file a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from validator.plugin.rule_pages import anchor

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Pages of the root that have a place in the navigation."""

LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s:#]+)(?P<fragment>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^(?: *)(```|~~~).*?^(?: *)\1", re.MULTILINE | re.DOTALL)
LANGUAGES = {
    ".py": "python",
    ".md": "markdown",
    ".toml": "toml",
    ".avsc": "json",
    ".json": "json",
    ".jsonl": "json",
    ".yml": "yaml",
}


def on_config(config: Any) -> Any:
    """Give headings the anchors that links of the pages use."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda text, _: anchor(text, {})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add every file outside of `docs/` that a page links to, and those that such pages link to."""
    waiting = [*PAGES, *sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))]
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        if not source.startswith("docs/"):
            files.append(File.generated(config, place(source), content=content(source)))
        if not (source.startswith("docs/") or is_page(source)):
            continue
        for target in linked(source):
            if target not in seen and not target.startswith("docs/") and (ROOT / target).exists():
                seen.add(target)
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point the links of a page that stands in `docs/` to where the site has their targets."""
    if page.file.generated_by is not None:
        return markdown
    return moved(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def place(source: str) -> str:
    """Return where the site has a file of the tree, as a path below `docs/`."""
    if source.startswith("docs/"):
        return source.removeprefix("docs/")
    if source in PAGES:
        return source
    return f"parts/{source}" if is_page(source) else f"source/{source}.md"


def is_page(source: str) -> bool:
    """Return whether a file outside of `docs/` becomes a page as it is. Other Markdown belongs to the product, which shows it elsewhere."""
    return source in PAGES or source.endswith("README.md")


def content(source: str) -> str:
    """Return a file of the tree as a page."""
    path = ROOT / source
    if path.is_dir():
        names = sorted(each.name + "/" * each.is_dir() for each in path.iterdir())
        return f"# {source}/\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = path.read_text(encoding="utf-8")
    if is_page(source):
        return moved(text, source, place(source))
    return f'---\nsearch:\n  exclude: true\n---\n# {source}\n\n````{LANGUAGES.get(path.suffix, "text")} linenums="1"\n{text}\n````\n'


def linked(source: str) -> list[str]:
    """Return the files of the tree that a page links to."""
    text = FENCE.sub("", (ROOT / source).read_text(encoding="utf-8"))
    return [resolved(source, match["target"]) for match in LINK.finditer(text)]


def resolved(source: str, target: str) -> str:
    """Return the file of the tree that a link of another one names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def moved(text: str, source: str, to: str) -> str:
    """Return a page's text with the links that hold where the site has it."""

    def link(match: re.Match[str]) -> str:
        target = resolved(source, match["target"])
        if not (ROOT / target).exists():
            return match[0]
        return posixpath.relpath(place(target), posixpath.dirname(to) or ".") + (match["fragment"] or "")

    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(link, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LINK.sub(link, text[at:])])
