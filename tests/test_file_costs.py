"""tests/costs.txt lists files by the processor time that they take, and keeps the reasons that stand in it."""

from __future__ import annotations

import subprocess
import sys

import file_costs


def test_files_are_listed_by_cost_and_reasons_are_kept() -> None:
    before = "# old\n  20.0  test_b.py  A real server.\n  30.0  test_gone.py  Gone.\n  40.0  test_c.py\n"
    text = file_costs.written({"test_a.py": 1, "test_c.py": 16, "test_b.py": 50, "test_d.py": 6}, before)
    assert text.splitlines()[1:] == [
        "# All: 73. The 1 under 5 each: 1.",
        "  50.0  test_b.py  A real server.",
        "  16.0  test_c.py",
        "   6.0  test_d.py",
    ]
    assert file_costs.unexplained(text) == ["test_c.py"]
    assert file_costs.listed(text) == {"test_b.py": 50, "test_c.py": 16, "test_d.py": 6}


def test_the_time_of_children_counts_though_they_have_ended() -> None:
    sampler = file_costs.Sampler(every=0.01)
    before = sampler.look()
    sampler.start()
    subprocess.run([sys.executable, "-Sc", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    assert sampler.look() - before >= 0.25
