"""Writes tests/costs.txt, the processor time that each test file takes (`make test-costs`).

Counted are the process that runs a file and all that it has started, as far as those have not left it: PostgreSQL's
server is not in it. What several files share (imports, the prepared demo) is counted where it is needed first. One line
a file, by cost: seconds, path, and where somebody has written one, the reason why it takes so long, which is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

WANTED = "CIMEMORIES_RECORD_COSTS"  # set by make
FILE = Path(__file__).with_name("costs.txt")
LISTED, EXPLAINED = 5.0, 15.0  # seconds from which on a file is listed, and needs a reason


def processor_seconds() -> float:
    """Return what this process and those that it has started have used so far."""
    this = psutil.Process()
    total = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])  # user, system, and both of the children that have ended
        except psutil.Error:
            continue  # it has just ended: its parent has its time at the next look
    return total


def reasons(text: str) -> dict[str, str]:
    """Return the reason that stands beside each file, '' where none does."""
    lines = [line.split(maxsplit=2) for line in text.splitlines() if line and not line.startswith("#")]
    return {path: "".join(reason) for _, path, *reason in lines}


def written(costs: Mapping[str, float], before: str) -> str:
    """Return the text of the file for these seconds; before: its text, for the reasons."""
    known = reasons(before)
    listed = sorted((path for path, cost in costs.items() if cost >= LISTED), key=lambda path: -costs[path])
    rest = sum(cost for path, cost in costs.items() if path not in listed)
    lines = [
        f"# Processor seconds of test files (`make test-costs`); over {EXPLAINED:.0f} a reason stands beside.",
        f"# All: {sum(costs.values()):.0f}. The {len(costs) - len(listed)} under {LISTED:.0f} each: {rest:.0f}.",
        *(f"{costs[path]:6.1f}  {path}  {known.get(path, '')}".rstrip() for path in listed),
    ]
    return "\n".join(lines) + "\n"


def unexplained(text: str) -> list[str]:
    """Return the files over EXPLAINED seconds that have no reason."""
    lines = [line.split(maxsplit=2) for line in text.splitlines() if line and not line.startswith("#")]
    return [path for cost, path, *reason in lines if float(cost) > EXPLAINED and not reason]


class Costs:
    """A plugin of pytest that measures; xdist's workers hand what they measured to the process that started them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.before: float | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if self.before is None:
            self.before = processor_seconds()
        result = yield
        if nextitem is None or nextitem.path != item.path:
            now = processor_seconds()
            self.seconds[item.nodeid.split("::")[0]] += max(0.0, now - self.before)
            self.before = now
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for path, seconds in getattr(node, "workeroutput", {}).get("costs", {}).items():
            self.seconds[path] += seconds

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["costs"] = dict(self.seconds)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        text = written(self.seconds, FILE.read_text("utf-8") if FILE.exists() else "")
        FILE.write_text(text, "utf-8")
        terminalreporter.write_line(f"{FILE} is written. Without a reason: {', '.join(unexplained(text)) or 'none'}")
