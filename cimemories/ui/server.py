"""`python -m cimemories.ui.server PAGE PORT`: Streamlit serving the app.

Streamlit takes a folder named `pages` beside the main script for its older kind of multipage app until the first
session has called st.navigation. A deep link as the first request to a fresh server then opens with a "Page not found"
dialog. What st.navigation sets is therefore set before the server starts.
"""

from __future__ import annotations

import sys

from streamlit.runtime.pages_manager import PagesManager
from streamlit.web import cli


def serve(page: str, port: str) -> None:
    """Serve until stopped; the settings are those of .streamlit/config.toml in the current folder."""
    PagesManager.uses_pages_directory = False
    cli.main(["run", page, "--server.port", port], prog_name="streamlit")


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
