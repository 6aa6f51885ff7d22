# SPDX-License-Identifier: Apache-2.0
"""Avro to core types and back: the only place that knows Avro.

`codec` is the value that says how records of some protocols are read and written. It is made once, as part of a runtime, and handed to
whoever decodes or encodes: nothing in this package remembers a protocol. `schemas` reads the schemas and computes their fingerprints,
`record_types` is what a protocol says of its records, `shared_shapes` has those that all protocols share. `decode` turns a Kafka value into
an input or a dead letter, `encode` turns outcomes into Kafka records, `json_form` turns JSON into records and records into JSON,
`inflight` carries decoded records between processes, `compatibility` tells whether one schema reads what another wrote.
"""
