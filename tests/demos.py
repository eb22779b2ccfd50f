"""The demo's folder with fewer recorded calls: to read those of all its people takes 5 s of the processor."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

from cimemories import demo
from cimemories.formats.official import read_profiles


def add_folder(folder: Path, profiles: int) -> None:
    """Make `folder` the demo's, with the recorded calls of its first `profiles` alone."""
    folder.mkdir()
    for name in ("profiles.json", demo.REAL_ABOUT, demo.REAL_CALLS):
        shutil.copy(demo.FOLDER / name, folder)
    people = read_profiles(folder / "profiles.json").profiles[:profiles]
    names = [f"My name is {person.name}.".encode() for person in people]
    with (
        lzma.open(demo.FOLDER / "calls.jsonl.xz", "rb") as all_calls,
        lzma.open(folder / "calls.jsonl.xz", "wb", preset=0) as chosen,
    ):
        is_chosen = False
        for line in all_calls:
            if line.startswith(b'{"request"'):
                is_chosen = any(name in line for name in names)
            if is_chosen:
                chosen.write(line)
