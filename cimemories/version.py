"""The version of the package, and the commit of its checkout."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path

try:
    __version__ = metadata.version("cimemories-studio")
except metadata.PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"


@lru_cache(maxsize=1)
def revision() -> str | None:
    """Return the commit of the checkout, for manifests; None without a checkout. Uncommitted changes do not show."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():  # installed, perhaps into a folder of another repository
        return None
    # Who owns the folder does not matter: nothing of it is run.
    command = ["git", "-c", "safe.directory=*", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
