"""`python -m cimemories.ui.server PAGE PORT`: Streamlit serving the app.

Streamlit takes a folder named `pages` beside the main script for its older kind of multipage app until the first
session has called st.navigation. A deep link as the first request to a fresh server then opens with a "Page not found"
dialog. What st.navigation sets is therefore set before the server starts. So are the modules that every page needs
imported, or whoever comes first would wait for them.
"""

from __future__ import annotations

import importlib
import sys

from streamlit.runtime.pages_manager import PagesManager
from streamlit.web import cli

HEAVY = (
    "pandas",
    "pyarrow",
    "plotly.graph_objects",
    "scipy.stats",
    "cimemories.analysis.headline",
    "cimemories.llm.worker",
    "cimemories.ui.charts",
)


def serve(page: str, port: str) -> None:
    """Serve until stopped; the settings are those of .streamlit/config.toml in the current folder."""
    for module in HEAVY:
        importlib.import_module(module)
    PagesManager.uses_pages_directory = False
    cli.main(["run", page, "--server.port", port], prog_name="streamlit")


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
