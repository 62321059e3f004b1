# SPDX-License-Identifier: GPL-2.0
"""Turns measured figures into tables and drawings, beside the papers' values and the aims."""
