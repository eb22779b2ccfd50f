"""Paths of the parts of the project that are not modules of this package (app.py, pages/, seeds/, data/demo/ and
.streamlit/), the path of the workspace, and the command for another Python of this installation.

A checkout has these parts beside the package. A wheel has them inside it, under `_app` (pyproject.toml): at the top of
site-packages `pages` and `seeds` would clash with other packages."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
BESIDE = _PACKAGE.parent  # the folder that `cimemories` is imported from: the checkout, or site-packages
_BUNDLED = _PACKAGE / "_app"
WORKSPACE = "CIMEMORIES_WORKSPACE"
DEFAULT_WORKSPACE = Path("data/workspace")


def app_root() -> Path:
    """Return the folder with app.py, pages/, seeds/, data/demo/ and .streamlit/: of the wheel, else the checkout."""
    return _BUNDLED if _BUNDLED.is_dir() else BESIDE


def chosen_workspace() -> Path:
    """Return the workspace that the app was started on: $CIMEMORIES_WORKSPACE, else the default."""
    return Path(os.environ.get(WORKSPACE) or DEFAULT_WORKSPACE)


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this package in a process of its own; to be started with `environment`.

    -P: without it the current folder comes first on the path, and a `random.py` of the user's is imported there.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables, with a path on which a child finds this package: it need not be installed. If the
    interpreter finds it by itself nothing is added, since PYTHONPATH precedes the standard library."""
    if Path(sysconfig.get_path("purelib")).resolve() == BESIDE:
        return dict(environ)
    path = os.pathsep.join(filter(None, [str(BESIDE), environ.get("PYTHONPATH")]))
    return {**environ, "PYTHONPATH": path}
