"""The version of the package, and the commit of its checkout."""

from __future__ import annotations

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
    git = Path(__file__).resolve().parent.parent / ".git"
    try:
        head = (git / "HEAD").read_text(encoding="ascii").strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (git / name).exists():
            return (git / name).read_text(encoding="ascii").strip()
        packed = (git / "packed-refs").read_text(encoding="ascii").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
    except (OSError, ValueError):
        return None
