# SPDX-License-Identifier: GPL-2.0
"""Lengths of handlers, as a trace has them."""

import unittest

from .. import handlers

TRACE = """\
 sh-1 [000] ..... 1000: tracing_mark_write: at 5.00
 <idle>-0 [001] d.h1. 2000: irq_handler_entry: irq=27 name=uldma-event
 <idle>-0 [000] d.h1. 2010: irq_handler_entry: irq=27 name=uldma-event
 <idle>-0 [001] d.h1. 2100: irq_handler_exit: irq=27 ret=handled
 <idle>-0 [000] d.h1. 2500: irq_handler_entry: irq=30 name=virtio0
 <idle>-0 [000] d.h1. 2600: irq_handler_exit: irq=30 ret=handled
 <idle>-0 [000] d.h1. 2310: irq_handler_exit: irq=27 ret=handled
 kworker/0:1-9 [000] ..... 3000: workqueue_execute_start: work struct 00aa: function _Rrun [uldma]
 kworker/1:1-8 [001] ..... 3100: workqueue_execute_start: work struct 00bb: function vmstat_update
 kworker/1:1-8 [001] ..... 3200: workqueue_execute_end: work struct 00bb: function vmstat_update
 kworker/0:1-9 [000] ..... 3500: workqueue_execute_end: work struct 00aa: function _Rrun [uldma]
 sh-1 [000] ..... 11000: tracing_mark_write: at 5.01
"""


class LengthsTest(unittest.TestCase):
    """Traces."""

    def test_pairs(self) -> None:
        """An exit belongs to the entry of the same processor; marks give the length of a tick."""
        found = handlers.lengths(TRACE)
        rounded = {name: [round(it) for it in each] for name, each in found.items()}
        expected = {"uldma-event": [100_000, 300_000], handlers.WORKER: [500_000]}
        self.assertEqual(rounded, expected)

    def test_no_marks(self) -> None:
        """Without two marks there is no length."""
        self.assertEqual(handlers.lengths(TRACE.partition("\n")[2]), {})

    def test_figures(self) -> None:
        """Median, number and sum."""
        found = {
            figure.name: figure.value for figure in handlers.figures({"x": [10.0, 20.0, 90.0]})
        }
        self.assertEqual(found["link.handler.x.time"], 20)
        self.assertEqual(found["link.handler.x.count"], 3)
        self.assertAlmostEqual(found["link.handler.x.us_per_mb"], 0.12 / (handlers.BYTES / 1e6))
