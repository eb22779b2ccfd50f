"""Write docs/api.md: the reference of the Python API, from its docstrings.

    python docs/api.py

tests/api/test_docs.py fails where the file is older than the docstrings.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import cimemories
from cimemories.extras.check.api import check
from cimemories.extras.check.checking import CheckResult

PAGE = Path(__file__).with_name("api.md")
CLASSES = ("Workspace", "Datasets", "Dataset", "Runs", "Run", "Metrics", "Heatmap", "Difference")
HEAD = """\
# The Python API

What the pages and the command line show, for a notebook or a script: the same numbers, as objects and pandas frames.
[tour.ipynb](tour.ipynb) is a tour of the demo.

    import cimemories

    ws = cimemories.open("data/workspace")
    run = ws.runs["sim-average on the demo"]
    run.metrics().violation[5]
    run.leaks()[["user", "statement", "recipient", "claimed", "draws"]]
    run.heatmap("domain", "context").figure()
    ws.compare("sim-careful on the demo", run).sentence

Frames for a study of several runs: what each run was asked with joins its flows, and labels join what judges claim.

    settings = ws.runs.to_frame()[["id", "model", "thinking", "temperature", "memory_order"]]
    ws.flows().merge(settings, left_on="run", right_on="id").groupby(["model", "label"])[["reveals", "draws"]].sum()
    run.claims(silent=True).merge(ws.labels("demo")[["attribute", "context", "label"]], on=["attribute", "context"])

What is named on this page is kept by semantic versioning; what begins with an underscore is not. The package is
typed. Frames are yours to change. Errors are `cimemories.StoreError`, and say what there is; a run may also raise
`cimemories.EndpointError` (a server that cannot be used) and `cimemories.WorkError` (work that ended early). Messages,
statements and names are a model's or a file's text: show them as text.

A list of datasets or runs, a run and its metrics draw themselves as tables in a notebook, with everything escaped. The
progress bar of `ws.run` needs the package ipywidgets there; without it only the result is shown.

DuckDB reads a frame as it is: `flows = run.flows(); duckdb.sql("SELECT domain, sum(reveals) FROM flows GROUP BY 1")`.

A run of 1,000 profiles has 7.2 million flows. Its frame took 1.2 s and 0.8 GB of memory on two cores
(benchmarks/api.py).

This page is written from the docstrings: `python docs/api.py`.
"""


def page() -> str:
    parts = [HEAD, _entry("cimemories.open", cimemories.open)]
    for name in CLASSES:
        parts += _class(name, getattr(cimemories, name))
    parts += [_entry("cimemories.extras.check.api.check", check), *_class("CheckResult", CheckResult)]
    return "\n".join(parts)


def _class(name: str, kind: type[Any]) -> list[str]:
    entries = [f"## {name}\n\n{_text(kind)}\n"]
    for member, value in vars(kind).items():
        if member.startswith("_") and member != "__getitem__":
            continue
        call = f"{name.lower()}[...]" if member == "__getitem__" else f"{name}.{member}"
        if isinstance(value, property):
            if value.__doc__:  # what has none is named by its class
                entries.append(f"### {call}\n\n{_text(value)}\n")
        elif callable(value) or isinstance(value, classmethod):
            if isinstance(value, classmethod):
                continue
            entries.append(_entry(call, value))
    if dataclasses.is_dataclass(kind):
        fields = ", ".join(f"`{item.name}`" for item in dataclasses.fields(kind) if not item.name.startswith("_"))
        entries[0] += f"\nFields: {fields}.\n"
    return entries


def _entry(name: str, function: Any) -> str:
    level = "##" if name.startswith("cimemories.") else "###"
    if name.endswith("[...]"):
        return f"{level} {name}\n\n{_text(function)}\n"
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    shown, starred = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown, starred = [*shown, "*"], True
        if parameter.kind is parameter.VAR_KEYWORD:
            shown.append(f"**{parameter.name}")
            continue
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        shown.append(f"{parameter.name}{default}")
    return f"{level} {name}\n\n`{name}({', '.join(shown)})`\n\n{_text(function)}\n"


def _text(item: Any) -> str:
    """The docstring as Markdown: names of columns and parameters hold no markup, but angle brackets do.
    Pages that it names become links."""
    text = re.sub(r"<(\w+)>", r"`<\1>`", inspect.getdoc(item) or "")
    return re.sub(r"docs/([a-z-]+)\.md", r"[\1](\1.md)", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
