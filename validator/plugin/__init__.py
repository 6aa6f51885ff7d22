# SPDX-License-Identifier: Apache-2.0
"""What plugins are written against (`api`, `hookspecs`), and how they are found, checked and frozen (`registry`, `runtime`)."""
