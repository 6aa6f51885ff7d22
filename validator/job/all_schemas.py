# SPDX-License-Identifier: Apache-2.0
"""The schemas of everything that is installed: of the product, of protocols, and of plugins' jobs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeAlias

from validator.codec.schemas import SchemaSet, schemas, schemas_of
from validator.errors import UserError
from validator.plugin.job_api import JOBS, JobContext, open_job
from validator.plugin.registry import discover, load_all, protocols_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from validator.codec.schemas import Schema
    from validator.plugin.job_api import Job
    from validator.plugin.protocol_api import ProtocolDefinition

PROTOCOLS = "validator.protocols"

Chains: TypeAlias = Mapping[str, Mapping[str, Any]]


def all_schemas() -> tuple[SchemaSet, dict[str, str]]:
    """Return every schema by its record's name, and the topic of each record that names it.

    Of two schemas of one name, the product's stands, then that of the plugin that comes first by name. A plugin that cannot be loaded, or a
    job that needs options, is left out: `validator plugins list` shows its problem.
    """
    sets = [schemas()]
    topics: dict[str, str] = {}
    definitions = _protocols()
    for definition in definitions:
        sets.append(schemas_of(definition.schemas))
        topics.update((record.schema, record.topic) for record in definition.records)
    for job in installed_jobs(_chain_of_each(definitions)):
        sets += (form.format.schemas for form in job.forms.values())
        topics.update((form.format.schema.name, topic) for topic, form in job.forms.items())
    return _merged(sets), topics


def every_chain() -> Chains:
    """Return chains as a job's context has them, one of each installed protocol."""
    return _chain_of_each(_protocols())


def installed_jobs(chains: Chains) -> list[Job]:
    """Return the installed jobs, by name, on such chains and without options; one that needs options is left out."""
    found: list[Job] = []
    for name in sorted({entry.name for entry in entry_points(group=JOBS)}):
        with suppress(UserError):
            found.append(open_job(JobContext(name, chains=chains)))
    return found


def _protocols() -> list[ProtocolDefinition]:
    return [definition for plugin in load_all(discover(PROTOCOLS))[0] for definition in protocols_of(plugin)]


def _chain_of_each(definitions: Iterable[ProtocolDefinition]) -> Chains:
    return {each.name: {"protocol": each.name, "limits": {}} for each in definitions}


def _merged(sets: Iterable[SchemaSet]) -> SchemaSet:
    versions: dict[str, tuple[Schema, ...]] = {}
    for each in sets:
        versions |= {name: found for name, found in each.versions.items() if name not in versions}
    return SchemaSet(versions)
