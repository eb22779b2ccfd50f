"""A folder mounted read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def read_only_mount(folder: Path) -> Iterator[None]:
    """This folder as a read-only file system, which holds for root as well."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root can mount a folder read-only")
    bind = subprocess.run(["mount", "--bind", str(folder), str(folder)], capture_output=True, check=False)
    if bind.returncode:
        pytest.skip("mounting is not possible here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
