"""The same check in a test suite: `pytest`, with CIMemories Studio installed beside it, knows `cimemories_check`."""

import os


def test_the_assistant_keeps_to_its_budgets(cimemories_check):
    cimemories_check("privacy.yaml", run=os.environ["PRIVACY_RUN"], workspace=os.environ.get("CIMEMORIES_WORKSPACE"))
