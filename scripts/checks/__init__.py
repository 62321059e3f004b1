# SPDX-License-Identifier: GPL-2.0
"""Checks of scripts/lint that are written in Python."""
