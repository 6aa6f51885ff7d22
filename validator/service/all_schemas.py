# SPDX-License-Identifier: Apache-2.0
"""The schemas of everything that is installed: of the product, of protocols, and of plugins' jobs."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from validator.codec.schemas import SchemaSet, schemas, schemas_of
from validator.errors import UserError
from validator.plugin.job_api import JOBS, JobContext, open_job
from validator.plugin.registry import discover, load_all, protocols_of

if TYPE_CHECKING:
    from collections.abc import Iterable

PROTOCOLS = "validator.protocols"


def all_schemas() -> tuple[SchemaSet, dict[str, str]]:
    """Return every schema by its record's name, and the topic of each record that names it.

    Of two schemas of one name, the product's stands, then that of the plugin that comes first by name. A plugin that cannot be loaded, or a
    job that needs options, is left out: `validator plugins list` shows its problem.
    """
    sets = [schemas()]
    topics: dict[str, str] = {}
    chains = {}
    for plugin in load_all(discover(PROTOCOLS))[0]:
        for definition in protocols_of(plugin):
            chains[definition.name] = {"protocol": definition.name, "limits": {}}
            sets.append(schemas_of(definition.schemas))
            topics.update((record.schema, record.topic) for record in definition.records)
    for name in sorted({entry.name for entry in entry_points(group=JOBS)}):
        try:
            forms = open_job(JobContext(name, chains=chains)).forms  # as if each protocol had a chain
        except UserError:
            continue
        sets += (form.format.schemas for form in forms.values())
        topics.update((form.format.schema.name, topic) for topic, form in forms.items())
    return _merged(sets), topics


def _merged(sets: Iterable[SchemaSet]) -> SchemaSet:
    current, versions = {}, {}
    for each in sets:
        for name, schema in each.current.items():
            if name not in current:
                current[name], versions[name] = schema, each.versions[name]
    return SchemaSet(current, versions)
