# SPDX-License-Identifier: Apache-2.0
"""The web console: pages that show what lanes do, from Kafka and the checkpoint, as any consumer reads them.

`follow` reads topics and `model` folds their records into what pages show; `pages` and `templates` make HTML of it; `app` serves the pages.
"""
