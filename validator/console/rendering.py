# SPDX-License-Identifier: Apache-2.0
"""Turns pages into HTML, whole or in the parts that change. Every value is made visible and escaped in one place."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from validator.console import drawings, shown
from validator.visible import printable, printable_lines

if TYPE_CHECKING:
    from validator.console.context import Page

LIVE: Final = "live_"
"""Blocks whose names begin so are the parts that live updates replace; each stands in an element with its name as ``data-part``."""
BASE: Final = "base.html"


def _visible(value: Any) -> Any:
    """Return a template's value; text that did not come from a template shows what is invisible in it."""
    return printable(value) if type(value) is str else value


def lines(text: str) -> Markup:
    """Return text of several lines, each made visible."""
    return escape(printable_lines(text.replace("\r\n", "\n")))


@cache
def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=PackageLoader("validator.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": shown.count,
        "size": shown.size,
        "left": shown.left,
        "plural": shown.plural,
        "short": shown.short_hex,
        "at": shown.at,
        "clock": shown.clock,
        "duration": shown.duration,
        "plain": shown.plain,
        "lines": lines,
        "pretty": lambda value: lines(json.dumps(value, indent=2)),
    }
    made.globals["bar"] = drawings.bar
    made.globals["ui"] = made.get_template("ui.html").module
    return made


def render(page: Page, more: dict[str, Any]) -> str:
    """Return a whole page."""
    return environment().get_template(page.template).render(page.context | more)


def parts(page: Page, more: dict[str, Any]) -> dict[str, str]:
    """Return the live parts of a page by name."""
    made = environment()
    found: dict[str, str] = {}
    for name in (BASE, page.template):
        template = made.get_template(name)
        context = template.new_context(page.context | more)
        for block, rendered in template.blocks.items():
            if block.startswith(LIVE):
                found[block] = "".join(rendered(context))
    return found
