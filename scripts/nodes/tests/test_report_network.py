# SPDX-License-Identifier: GPL-2.0
"""What the report of the network interface says."""

import unittest
from collections.abc import Mapping

from .. import report
from ..report import network
from ..report.values import Values
from ..results import Figure
from .test_report_parts import figures, rendered, verdicts


class NetworkTest(unittest.TestCase):
    """The interface beside its rivals."""

    VALUES: Mapping[str, float] = {
        "network.adapter.stream": 500.0,
        "network.adapter.mtu": 9000.0,
        "network.adapter.stream.mtu1500": 100.0,
        "network.adapter.rtt.p50": 300_000.0,
        "network.adapter.accesses_per_mib": 3.0,
        "network.virtio.stream": 50.0,
        "network.virtio.stream.mtu1500": 60.0,
        "network.virtio.stream.mtu9000": 70.0,
        "network.virtio.rtt.p50": 400_000.0,
        "network.adapter.rtt.p50.busy_poll": 90_000.0,
        "network.adapter.irqs_per_round_trip.busy_poll": 0.25,
        "network.virtio.rtt.p50.busy_poll": 200_000.0,
        "network.virtio.irqs_per_round_trip.busy_poll": 2.0,
        "network.tun.stream": 70.0,
        "network.tun.irqs_per_round_trip": 12.5,
    }

    def test_rivals(self) -> None:
        """The rival of a figure is what virtio-net has in its place, and nothing is its own."""
        found = {it.name: it.rival for it in network.relate(figures(self.VALUES))}
        self.assertEqual(found["network.adapter.stream"], 50.0)
        self.assertEqual(found["network.adapter.stream.mtu1500"], 60.0)
        self.assertIsNone(found["network.adapter.accesses_per_mib"])
        self.assertIsNone(found["network.adapter.mtu"])
        self.assertIsNone(found["network.virtio.stream"])

    def test_tables(self) -> None:
        """A row for each way that was measured, and a column for each MTU."""
        text = rendered("network", self.VALUES)
        [head] = [line for line in text.splitlines() if "own MTU" in line]
        self.assertEqual([it.strip() for it in head.split("|")][-2:], ["MTU 1500", "MTU 9000"])
        self.assertIn("ul0 by the adapter", text)
        [polled] = text.split("net.core.busy_read")[1:]
        self.assertIn("0.25", polled)
        [costs] = [line for line in text.splitlines() if "12.5" in line]
        self.assertIn("TUN and a connection", costs)
        self.assertNotIn("PPP", text)
        self.assertNotIn("Datagrams", text)

    def test_aims(self) -> None:
        """A stream has to be much faster, a round trip much shorter."""
        found = verdicts(rendered("network", self.VALUES))
        title = "ul0 by the adapter"
        self.assertEqual(found[f"stream by {title}: times virtio-net's"], "met")
        self.assertEqual(found[f"round trip by {title}: times virtio-net's"], "missed")
        self.assertEqual(found[f"accesses to the device by MiB, {title}"], "met")
        polled = f"round trip by {title}, polled: times virtio-net's, polled"
        self.assertEqual(found[polled], "met")
        self.assertEqual(len(found), 4)

    def test_nothing(self) -> None:
        """Without figures there is nothing to say."""
        self.assertEqual(report.render("network", Values(list[Figure]())), "")
