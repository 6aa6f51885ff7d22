# SPDX-License-Identifier: Apache-2.0
"""The API that plugins import (`api`, `hookspecs`), and the code that finds, checks and freezes them (`registry`, `runtime`)."""
