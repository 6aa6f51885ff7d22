# SPDX-License-Identifier: Apache-2.0
"""The web console: pages that show what lanes do, from Kafka and the checkpoint, as any consumer reads them.

`follow` reads topics, `model` folds their records and `journeys` those of messages; `overview`, `verdicts`, `channels`, `messages`, `paras`
and `letters` are the pages, which `rendering` and `templates` turn into HTML; `app` and `serve` answer requests.
"""
