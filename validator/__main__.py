# SPDX-License-Identifier: Apache-2.0
"""`python -m validator` is `validator`."""

from validator.cli.main import main

main()
