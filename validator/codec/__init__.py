# SPDX-License-Identifier: Apache-2.0
"""Avro to core types and back: the only place that knows Avro.

`schemas` finds the schemas and their fingerprints, `decode` turns a Kafka value into an input or a dead letter, `encode` turns outcomes
into Kafka records, `json_form` turns JSON into records and records into JSON, `inflight` carries decoded records between processes,
`compatibility` tells whether one schema reads what another wrote.
"""
