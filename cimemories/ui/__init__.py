"""The parts that pages are drawn with: safe text, the URL, the head of a page, charts and tables. Imports only
`model`."""

from pathlib import Path
from typing import Any

import streamlit as st

ASSETS = Path(__file__).parent / "assets"


def component(name: str, *scripts: str) -> Any:
    """Return the component made of assets/NAME.html, .css and .js, the first two if they exist. scripts: others that
    its script needs beside dom.js, with their styles, all in one, since an inline script cannot import another."""
    parts = ("dom", *scripts, name)

    def asset(file: str) -> str | None:
        path = ASSETS / file
        # Streamlit reads a text without a line break as a path, so the last line break stays.
        return path.read_text(encoding="utf-8") if path.exists() else None

    return st.components.v2.component(
        f"cimemories_{name}",
        html=asset(f"{name}.html") or "<div></div>\n",
        css="".join(asset(f"{part}.css") or "" for part in parts) or None,
        js="".join(asset(f"{part}.js") or "" for part in parts),
    )
