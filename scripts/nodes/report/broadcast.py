# SPDX-License-Identifier: GPL-2.0
"""Data for two processes of a node: one transfer into memory that both share, or one for each."""

from .tables import ratio, row, table
from .values import Values

SIZES = ("4k", "64k", "1m", "4m")


def of(values: Values) -> str | None:
    """Time and copies of both ways, by size."""
    rows = []
    for size in SIZES:
        shared, two = (values.micro(f"broadcast.{way}.{size}.time") for way in ("shared", "two"))
        copies = [values.get(f"broadcast.{way}.{size}.copies") for way in ("shared", "two")]
        if shared is not None:
            rows.append(row(size, [shared, two, ratio(two, shared), *copies]))
    return table(
        "Broadcasts to two processes of one node, us",
        ["size", "shared segment", "two connections", "by it", "copies", "copies of two"],
        rows,
    )
