"""Write docs/settings.md: the settings of a run, a labelling and a generation, from the fields of their specs.

    python docs/settings.py

tests/test_website.py fails if the file is older than the fields.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cimemories.curation.spec import AuthoringSpec, LabellingSpec
from cimemories.evaluation.spec import Group, RunSpec
from cimemories.evaluation.sweeps.file import AXES
from cimemories.settings import Described, Settings

PAGE = Path(__file__).with_name("settings.md")
HEAD = """\
# Settings

Of a run, and [of labellings and generations](#labellings).

Every setting of a run is an option of `cimemories run` and `check` and a field of *New run*. By its name it is a choice
of `Workspace.run` ([Python API](api.md)), a field of a sweep's file and a key of the run's manifest (`asked`). In a
sweep's file ([sweeps](sweeps.md)) a setting with a name in the last column may be a list, for the whole sweep or for
one of its models: each combination is a run. What the settings do is in [runs](runs.md).

This page is written from the settings: `python docs/settings.py`.
"""
# What else is made of settings: its spec, its heading and what stands there.
OTHERS: tuple[tuple[type[Settings], str, str], ...] = (
    (LabellingSpec, "Labellings", "Options of `cimemories label` and fields of *Start a labelling*."),
    (
        AuthoringSpec,
        "Generations",
        "Options of `cimemories generate` and fields of *New profiles*. Profiles from templates need no model, and by "
        "default have 5 attributes per domain.",
    ),
)
COLUMNS = ("Setting", "Name", "Option", "Default", "Meaning")


def page() -> str:
    """Return the page as it should be."""
    lines = [HEAD]
    for group in Group:
        lines += [f"## {group}\n", row(*COLUMNS, "Lists in a sweep"), "|---|---|---|---|---|---|"]
        for item in RunSpec.described().values():
            if item.setting.group == group:
                sweep = f"`{item.setting.plural or item.name}`" if item.name in AXES else ""
                lines.append(row(*cells(item), sweep))
        lines.append("")
    for spec, heading, text in OTHERS:
        lines += [f"## {heading}\n", f"{text}\n", row(*COLUMNS), "|---|---|---|---|---|"]
        lines += [row(*cells(item)) for item in spec.described().values()]
        lines.append("")
    return "\n".join(lines)


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def cells(item: Described) -> tuple[str, ...]:
    """Return what the columns say of a setting."""
    meaning = f"{item.setting.help} {item.setting.option_help}".strip().replace("|", "\\|")
    return item.setting.title, f"`{item.name}`", f"`{item.option}`", default(item), meaning


def default(item: Described) -> str:
    """Return the default of a setting as a cell."""
    if item.info.is_required():
        return "needed"
    value: Any = item.default
    if isinstance(value, tuple):
        return ", ".join(f"`{part}`" for part in value)
    return "none" if value in (None, {}) else "off" if value is False else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
