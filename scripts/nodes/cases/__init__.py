# SPDX-License-Identifier: GPL-2.0
"""The node tests; importing a module of this package registers its cases."""

import importlib
import pkgutil


def load() -> None:
    """Register the cases of every module."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
