"""Keeps Python's collector away from the libraries: Streamlit has it go through everything after each run of a page.

That took 200 ms of every run here (some 260,000 objects, nearly all of them functions and classes of libraries), in
which the process answers nobody: the next press, or another person's page, waited for it.
"""

from __future__ import annotations

import atexit
import gc
import sys

_modules = 0
atexit.register(gc.unfreeze)  # or DuckDB complains of everything that was left out when the process ends


def spare_libraries() -> None:
    """Leave out of collections to come whatever is there now; done again only once more modules have been imported.

    What is freed by counting references still is. Cycles that are garbage are collected first; one that becomes garbage
    later, and was there at such a moment, stays: that is a few sessions' worth at most, since modules come only while
    pages are opened for the first time.
    """
    global _modules
    if len(sys.modules) > _modules:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()
