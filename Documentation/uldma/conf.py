# SPDX-License-Identifier: GPL-2.0
"""Sphinx configuration: the user interface's reference comes from its header by kernel-doc."""

import os
import sys

REPO = os.path.abspath("../..")
KSRC = os.environ["KSRC"]

# The kernel's own extension, which looks for kernel-doc below $srctree.
os.environ["srctree"] = KSRC
sys.path.insert(0, os.path.join(KSRC, "Documentation/sphinx"))

project = "uldma"
copyright = "the uldma authors"
extensions = ["kerneldoc"]
kerneldoc_srctree = REPO
primary_domain = "c"
highlight_language = "none"
html_theme = "alabaster"
html_show_copyright = False
exclude_patterns = []
