# SPDX-License-Identifier: Apache-2.0
"""`validator serve`: what the topics hold, read-only over HTTP, as pages of JSON and as server-sent events.

`parameters` reads a query, `cursors` the place where a reader continues, `pages` reads one page from Kafka and `events` a stream; `openapi`
describes all of it from the Avro schemas; `app` and `running` answer requests.
"""
