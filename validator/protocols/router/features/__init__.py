# SPDX-License-Identifier: Apache-2.0
"""The rules that the relay chain adopted after router.txt, one feature each; `table` lists them with the profiles made of them.

A module here holds what one group of features does. `profile` composes the functions that hold at a height; the modules of router.txt
itself know nothing of this package.
"""
