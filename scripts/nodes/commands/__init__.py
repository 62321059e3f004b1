# SPDX-License-Identifier: GPL-2.0
"""What can be done with nodes: one module for each command, with a main(arguments)."""
