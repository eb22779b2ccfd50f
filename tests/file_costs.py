"""Writes tests/costs.txt, the processor time that each test file takes (`make test-costs`), by which they are ordered.

Counted are the process that runs a file and all that it has started: PostgreSQL's server has left them, and is not in
it. What several files share (imports, the prepared demo) is counted where it is needed first. One line
a file, by cost: seconds, path, and where somebody has written one, the reason why it takes so long, which is kept.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

WANTED = "CIMEMORIES_RECORD_COSTS"  # set by make
FILE = Path(__file__).with_name("costs.txt")
LISTED, EXPLAINED = 5.0, 15.0  # seconds from which on a file is listed, and needs a reason


class Sampler(threading.Thread):
    """Adds up what this process and those that it has started use. It looks every so many seconds, and does not see
    what ends between two looks: asking at the end is too late for a browser, whose processes come and go."""

    def __init__(self, every: float = 0.5) -> None:
        super().__init__(daemon=True, name="costs")
        self.every, self.total = every, 0.0
        self._seen: dict[psutil.Process, float] = {}
        self._alone = threading.Lock()

    def run(self) -> None:
        while True:
            self.look()
            time.sleep(self.every)

    def look(self) -> float:
        """Return the seconds so far."""
        with self._alone:
            this = psutil.Process()
            for process in [this, *this.children(recursive=True)]:
                try:
                    used = sum(process.cpu_times()[:2])
                except psutil.Error:
                    continue  # it has just ended
                self.total += used - self._seen.get(process, 0.0)
                self._seen[process] = used
            return self.total


def listed(text: str) -> dict[str, float]:
    """Return the seconds of each file that is listed."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {path: float(seconds) for seconds, path, *_ in lines}


def reasons(text: str) -> dict[str, str]:
    """Return the reason that stands beside each file, '' where none does."""
    lines = [line.split(maxsplit=2) for line in text.splitlines() if line and not line.startswith("#")]
    return {path: "".join(reason) for _, path, *reason in lines}


def written(costs: Mapping[str, float], before: str) -> str:
    """Return the text of the file for these seconds; before: its text, for the reasons."""
    known = reasons(before)
    dear = sorted((path for path, cost in costs.items() if cost >= LISTED), key=lambda path: -costs[path])
    rest = sum(cost for path, cost in costs.items() if path not in dear)
    lines = [
        f"# Processor seconds of test files (`make test-costs`); over {EXPLAINED:.0f} a reason stands beside.",
        f"# All: {sum(costs.values()):.0f}. The {len(costs) - len(dear)} under {LISTED:.0f} each: {rest:.0f}.",
        *(f"{costs[path]:6.1f}  {path}  {known.get(path, '')}".rstrip() for path in dear),
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
        self.sampler = Sampler()
        self.before = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if not self.sampler.is_alive():
            self.before = self.sampler.look()
            self.sampler.start()
        result = yield
        if nextitem is None or nextitem.path != item.path:
            now = self.sampler.look()
            self.seconds[item.nodeid.split("::")[0]] += now - self.before
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
