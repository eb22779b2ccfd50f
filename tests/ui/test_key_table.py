"""One table of keys: what each means is the same on every page, and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from cimemories.ui.presses import KEYS
from pages.explore import leaks_gallery

DOCS = Path(__file__).resolve().parents[2] / "docs" / "review.md"


def test_the_documentation_has_every_key_once() -> None:
    table = DOCS.read_text(encoding="utf-8").split("| Key | Does")[1].split("\n## ")[0]
    listed = re.findall(r"`(.)`", table.split("Matrix", maxsplit=1)[0])
    assert sorted(listed) == sorted(KEYS)


def test_pages_use_keys_of_the_table() -> None:
    assert set(leaks_gallery.KEYS) <= set(KEYS)
