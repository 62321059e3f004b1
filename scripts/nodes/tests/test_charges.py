# SPDX-License-Identifier: GPL-2.0
"""The check of what waits for a caller below a lock, on the driver and on drivers that break it."""

import tempfile
import unittest
from pathlib import Path

from checks import charges

from ..paths import REPO

STRUCT = """
pub(crate) struct Things {
    state: Mutex<State>,
    shared: Mutex<Option<Arc<Shared>>>,
}

struct State {
    inner: Inner,
}

"""


class ChargesTest(unittest.TestCase):
    """Which waits the check finds."""

    def findings(self, text: str) -> list[str]:
        """The findings of a driver with one file, without its path."""
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "things.rs").write_text(STRUCT + text)
            found = charges.Driver(Path(directory)).findings()
            return [line.split(": ", 1)[1] for line in found]

    def method(self, body: str, owner: str = "Things", receiver: str = "&self") -> str:
        """A method of one of the structures."""
        lines = "".join(f"        {line}\n" for line in body.splitlines())
        return f"impl {owner} {{\n    fn add({receiver}) {{\n{lines}    }}\n}}\n"

    def test_driver(self) -> None:
        """The driver itself waits for no caller below a lock."""
        self.assertEqual(list(charges.Driver(REPO / "drivers/uldma").findings()), [])

    def test_guard(self) -> None:
        """A charge below a guard is found, before it and after it not."""
        early = "let a = make(GFP_KERNEL_ACCOUNT);\nlet mut state = self.state.lock();\n"
        late = "drop(state);\nlet b = make(GFP_KERNEL_ACCOUNT);"
        self.assertEqual(self.findings(self.method(early + late)), [])
        held = early + "state.push(make(GFP_KERNEL_ACCOUNT));\n" + late
        found = ["Things::add: GFP_KERNEL_ACCOUNT below guard `state`"]
        self.assertEqual(self.findings(self.method(held)), found)

    def test_block(self) -> None:
        """A guard ends with its block."""
        body = "{\n    let state = self.state.lock();\n}\nmake(GFP_KERNEL_ACCOUNT);"
        self.assertEqual(self.findings(self.method(body)), [])

    def test_gate(self) -> None:
        """Who is inside of the gate waits for no address space."""
        body = "let guard = shared.gate.try_enter()?;\nmmap_read_lock(mm);"
        found = ["Things::add: mmap_read_lock below guard `guard`"]
        self.assertEqual(self.findings(self.method(body)), found)

    def test_contents(self) -> None:
        """What is behind a lock charges nobody when it changes, nor do its fields."""
        charge = "self.list.push(1, GFP_KERNEL_ACCOUNT);"
        for owner in ("State", "Inner"):
            found = [f"{owner}::add: GFP_KERNEL_ACCOUNT below the lock of {owner}"]
            self.assertEqual(self.findings(self.method(charge, owner, "&mut self")), found)
            self.assertEqual(self.findings(self.method(charge, owner, "size: u32")), [])
        # An Arc can be had without the lock.
        self.assertEqual(self.findings(self.method(charge, "Shared", "&mut self")), [])

    def test_calls(self) -> None:
        """A function that calls one that waits waits, too."""
        callee = "fn make() {\n    charge()\n}\n\nfn charge() {\n    alloc(GFP_KERNEL_ACCOUNT)\n}\n"
        body = "let state = self.state.lock();\nmake();"
        found = ["Things::add: make below guard `state`"]
        self.assertEqual(self.findings(callee + self.method(body)), found)

    def test_comments_and_tests(self) -> None:
        """Neither comments nor unit tests count."""
        body = "let state = self.state.lock();\n// GFP_KERNEL_ACCOUNT"
        tests = "#[kunit_tests(things)]\n" + self.method(body.replace("// ", ""))
        self.assertEqual(self.findings(self.method(body) + tests), [])

    def test_comment_below_a_lock(self) -> None:
        """A guard goes on behind a comment, whatever name a closure gives to what it guards."""
        charge = "self.list.push(1, GFP_KERNEL_ACCOUNT);"
        body = f"let state = self.state.lock();\n// Why.\n{charge}"
        found = ["Things::add: GFP_KERNEL_ACCOUNT below guard `state`"]
        self.assertEqual(self.findings(self.method(body)), found)
        body = f"self.things.with(part, |memory| {{\n    // Why.\n    {charge}\n}});"
        found = ["Things::add: GFP_KERNEL_ACCOUNT below guard `memory`"]
        self.assertEqual(self.findings(self.method(body)), found)

    def test_bound_device(self) -> None:
        """Who is handed the bound device is inside of the gate, however it came there."""
        charge = "self.list.push(1, GFP_KERNEL_ACCOUNT);"
        found = ["Things::add: GFP_KERNEL_ACCOUNT below the gate"]
        for handed in (
            "hw: Hw<'_>",
            "dev: &Device<Bound>",
            "New { ring, page }: New, (hw, tpt): (Hw<'_>, &Tpt)",
        ):
            text = self.method(charge, receiver=f"&self, {handed}")
            self.assertEqual(self.findings(text), found)
        text = self.method(charge, receiver="&self, f: impl Fn(Hw<'_>) -> Result<()>")
        self.assertEqual(self.findings(text), [])
        body = f"if let Some(guard) = self.gate.enter() {{\n    {charge}\n}}\n{charge}"
        found = ["Things::add: GFP_KERNEL_ACCOUNT below guard `guard`"]
        self.assertEqual(self.findings(self.method(body)), found)
