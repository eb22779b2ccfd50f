"""The read-only app, `cimemories app --read-only`: for a public demo, in which visitors look and change nothing.

The mode is a variable of the environment, which every process that the app starts inherits. Those that could write or
send something ask `chosen` and refuse: the store (store/engine.py), caches and baskets, requests to servers of models
(llm/http/transport.py), servers on this machine (llm/vllm_server.py), uploads (access/guard.py, uploads.py). Pages
leave their controls out, which is for people; it is not what keeps the workspace as it is.
"""

from __future__ import annotations

import os

READ_ONLY = "CIMEMORIES_READ_ONLY"  # the variable; '1' chooses the mode
REASON = "the app was started read-only (--read-only)"


def chosen() -> bool:
    """Return True if the app is read-only, so that no process may write or start anything."""
    return os.environ.get(READ_ONLY) == "1"
