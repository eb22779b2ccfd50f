"""Write docs/settings.md: the settings of a run, from the fields of RunSpec.

    python docs/settings.py

tests/test_website.py fails if the file is older than the fields.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cimemories.evaluation.spec import Group, RunSpec
from cimemories.evaluation.sweeps.file import AXES
from cimemories.settings import Described

PAGE = Path(__file__).with_name("settings.md")
HEAD = """\
# Settings of a run

Every setting of a run is an option of `cimemories run` and `check` and a field of *New run*. By its name it is a choice
of `Workspace.run` ([Python API](api.md)), a field of a sweep's file and a key of the run's manifest (`asked`). In a
sweep's file ([sweeps](sweeps.md)) a setting with a name in the last column may be a list, for the whole sweep or for
one of its models: each combination is a run. What the settings do is in [runs](runs.md).

This page is written from the settings: `python docs/settings.py`.
"""
ROW = "| {} | `{}` | `{}` | {} | {} | {} |"


def page() -> str:
    """Return the page as it should be."""
    lines = [HEAD]
    for group in Group:
        lines += [
            f"## {group}\n",
            "| Setting | Name | Option | Default | Meaning | Lists in a sweep |",
            "|---|---|---|---|---|---|",
        ]
        for item in RunSpec.described().values():
            if item.setting.group == group:
                sweep = f"`{item.setting.plural or item.name}`" if item.name in AXES else ""
                meaning = item.setting.help.replace("|", "\\|")
                lines.append(ROW.format(item.setting.title, item.name, item.option, default(item), meaning, sweep))
        lines.append("")
    return "\n".join(lines)


def default(item: Described) -> str:
    """Return the default of a setting as a cell."""
    if item.info.is_required():
        return "needed"
    value: Any = item.default
    return "none" if value in (None, {}) else "off" if value is False else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
