# SPDX-License-Identifier: Apache-2.0
"""The Router: UMP, DMP and HRMP by router.txt and the readings of router_rules."""
