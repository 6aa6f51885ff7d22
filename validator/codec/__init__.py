# SPDX-License-Identifier: Apache-2.0
"""Conversion between Avro and core types: the only package that knows Avro.

`codec` is a value that says how the records of some protocols are read and written. It is built once, as part of a runtime, and passed to
whoever decodes or encodes: nothing in this package remembers a protocol. `schemas` reads the schemas and computes their fingerprints.
`record_types` lets a protocol describe its own records. `strict` reads Avro. `decode` turns a Kafka value into an input or a dead letter,
`encode` turns outcomes into Kafka records. `json_form` converts between JSON and records, `inflight` decides what arrives for which lane
and carries it between processes, and `compatibility` checks whether one schema can read what another wrote.
"""
