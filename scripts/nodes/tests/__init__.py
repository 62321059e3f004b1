# SPDX-License-Identifier: GPL-2.0
"""Tests of the runner itself: a test that cannot fail proves nothing."""
