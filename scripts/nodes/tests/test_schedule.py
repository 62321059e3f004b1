# SPDX-License-Identifier: GPL-2.0
"""Which test a worker gets."""

import unittest
from collections.abc import Iterator, Mapping

from ..plan import Order, Test
from ..schedule import Schedule
from .fakes import BOOT, FakeDurations, make_test


def schedule(
    seconds: Mapping[str, float], workers: int = 2, orders: Mapping[str, Order] | None = None
) -> Schedule:
    """A schedule of tests that are called TOPOLOGY/NAME or NAME, with how long each takes."""
    tests = []
    for name in seconds:
        topology, _, plain = name.rpartition("/")
        tests.append(make_test(plain, topology, (orders or {}).get(name, Order.ANY)))
    return Schedule(tests, FakeDurations(seconds), workers)


def rest(plan: Schedule, first: Test | None) -> Iterator[str]:
    """The names of a test and of those that follow on its nodes."""
    test = first
    while test:
        yield test.name
        test = plan.next(test)


class ScheduleTest(unittest.TestCase):
    """Every test runs once, and the end comes early."""

    def test_longest_first(self) -> None:
        """The longest test of a topology comes first; what must be first, before that."""
        orders = {"setup": Order.FIRST, "end": Order.LAST}
        plan = schedule({"a": 1, "b": 3, "setup": 0, "end": 9, "c": 2}, workers=1, orders=orders)
        self.assertEqual(list(rest(plan, plan.first())), ["setup", "b", "c", "a", "end"])
        self.assertIsNone(plan.first())

    def test_no_test_begins_when_the_time_is_over(self) -> None:
        """Neither on nodes that are up nor on others; what is left can be counted."""
        tests = [make_test(name, topology) for topology in ("", "other") for name in "ab"]
        times = iter([False, False, True, True])
        plan = Schedule(tests, FakeDurations({}), 1, lambda: next(times))
        first = plan.first()
        assert first
        second = plan.next(first)
        assert second
        self.assertEqual((first.topology, plan.next(second)), (second.topology, None))
        self.assertIsNone(plan.first())
        self.assertEqual(plan.waiting(), 2)

    def test_host_first(self) -> None:
        """What needs no node begins first, even if others take longer."""
        first = schedule({"a": 9, "host/cargo": 1, "x/b": 3}).first()
        assert first
        self.assertEqual(first.name, "host/cargo")

    def test_order_is_kept(self) -> None:
        """Tests that take as long as each other keep their order."""
        plan = schedule(dict.fromkeys("xyz", 1.0), workers=1)
        self.assertEqual(list(rest(plan, plan.first())), ["x", "y", "z"])

    def test_unbooted_topologys_first(self) -> None:
        """A second worker takes another topology, and the one with the most work of these."""
        plan = schedule({"a": 500, "b": 500, "small/a": 1, "large/a": 2})
        names = [test.name for test in (plan.first(), plan.first(), plan.first()) if test]
        self.assertEqual(names, ["a", "large/a", "small/a"])

    def test_help_is_worth_a_boot(self) -> None:
        """A topology gets a second set of nodes while its tests take longer than a boot."""
        plan = schedule({"a": 1, "b": BOOT, "c": 2 * BOOT})
        first, second = plan.first(), plan.first()
        assert first and second
        self.assertEqual((first.name, second.name), ("c", "b"))
        self.assertIsNone(plan.first())

    def test_help_is_not_worth_a_boot(self) -> None:
        """What is left is sooner done by the nodes that are up."""
        plan = schedule({"a": 1, "b": BOOT - 2})
        first = plan.first()
        assert first
        self.assertIsNone(plan.first())
        self.assertEqual(list(rest(plan, first)), ["b", "a"])

    def test_nodes_that_ended(self) -> None:
        """When a test has ended its nodes, the rest of the topology gets new ones."""
        plan = schedule({"a": 1, "b": 2})
        first = plan.first()
        assert first
        plan.leave(first.topology)
        again = plan.first()
        assert again
        self.assertEqual(again.name, "a")

    def test_last_is_due(self) -> None:
        """A long test that ends its nodes begins when others are busy for as long."""
        orders = {"end": Order.LAST}
        plan = schedule({"a": 300, "b": 80, "c": 60, "end": 200}, orders=orders)
        names = list(rest(plan, plan.first()))
        self.assertEqual(names, ["a", "end"])

    def test_last_waits(self) -> None:
        """A short one waits for the end."""
        plan = schedule({"a": 300, "b": 80, "c": 1, "end": 5}, orders={"end": Order.LAST})
        self.assertEqual(list(rest(plan, plan.first())), ["a", "b", "c", "end"])

    def test_two_last_share_nodes(self) -> None:
        """A second last test follows the first, and no other test does."""
        orders = dict.fromkeys(("end", "more"), Order.LAST)
        plan = schedule({"a": 3, "end": 2, "more": 1}, workers=1, orders=orders)
        self.assertEqual(list(rest(plan, plan.first())), ["a", "end", "more"])
        plan = schedule({"a": 3, "end": 2}, orders=orders)
        self.assertIsNone(plan.next(make_test("more", order=Order.LAST)))

    def test_give_up(self) -> None:
        """What no nodes can be had for is counted, and no longer waits."""
        plan = schedule({"a": 1, "b": 2, "x/c": 3})
        first = plan.first()
        assert first and first.topology.name == "x"
        second = plan.first()
        assert second
        self.assertEqual(plan.give_up(second.topology), 1)
        self.assertIsNone(plan.next(second))
        self.assertIsNone(plan.first())

    def test_stop(self) -> None:
        """Nothing runs any more."""
        plan = schedule({"a": 1, "x/b": 2})
        plan.stop()
        self.assertIsNone(plan.first())
