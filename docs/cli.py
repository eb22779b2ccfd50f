"""Write docs/cli.md: the reference of the command line, from its commands and their help.

    python docs/cli.py

tests/test_website.py fails where the file is older than the commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from cimemories.cli.base import load

PAGE = Path(__file__).with_name("cli.md")
NAME = "cimemories"
# By the module that a command is in; those of cimemories/extras/ are each in a module named command.
TITLES = {
    "datasets": "Data",
    "labels": "Labels",
    "review": "Review",
    "runs": "Runs",
    "sweeps": "Sweeps",
    "batch": "Batch files",
    "metrics": "Numbers",
    "compare": "Comparisons",
    "leaks": "Leaks and reports",
    "serve": "App and servers",
    "upkeep": "Workspace",
    "command": "Extras",
}
HEAD = """\
# The command line

`cimemories` does what the app does, for scripts and servers. In a checkout it is `.venv/bin/cimemories`.

- Every command takes `--help` and `--workspace FOLDER` (or `CIMEMORIES_WORKSPACE`; default `data/workspace`).
  Those that bring something in make the folder; those about what it holds say where there is none.
  `CIMEMORIES_DATABASE_URL` uses PostgreSQL instead ([workspace](workspace.md)).
- Results go to standard output, progress and errors to standard error. Most commands print JSON with `--json`.
- Where an id is asked for, its beginning will do (`run-3f9a`, `3f9a`), and of a run or sweep its name, as long as only
  one is meant.
- Without a terminal (a log, a batch system) the id of new work is printed first, and progress as a line every 30
  seconds. Output is UTF-8 whatever the locale says.
- Exit status: 0 success, 1 an error, 2 a command that was not understood, 3 work that ended with part of its plan
  missing ([runs](runs.md#when-it-ends)); `check` has its own ([check](check.md)).

This page is written from the commands: `python docs/cli.py`.
"""
EXAMPLE = re.compile(r"\s*\bExample: (.+?)(?=\n\n|\Z)", re.DOTALL)


def page() -> str:
    sections: dict[str, list[tuple[str, Any]]] = {title: [] for title in TITLES.values()}
    for title, name, command in commands(load(), NAME):
        sections.setdefault(title, []).append((name, command))
    overview = ["## All commands\n"]
    entries = []
    for title, members in sections.items():
        rows = (f"| [`{name}`](#{name.replace(' ', '-')}) | {_summary(command)} |" for name, command in members)
        overview.append(f"**{title}**\n\n| Command | What it does |\n|---|---|\n" + "\n".join(rows) + "\n")
        entries += [f"## {title}\n", *(_entry(name, command) for name, command in members)]
    return "\n".join([HEAD, *overview, *entries])


def commands(among: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, Any]]:
    """Title, full name and command of each that `--help` lists, those of a group one after the other."""
    for name, command in among.items():
        if command.hidden:
            continue
        group = getattr(command, "commands", {})
        if not group or command.invoke_without_command:
            module = command.callback.__module__.rsplit(".", 1)[-1]
            yield TITLES[module], f"{prefix} {name}", command
        yield from commands(group, f"{prefix} {name}")


def _summary(command: Any) -> str:
    """The first sentence of the help."""
    text = EXAMPLE.sub("", command.help).split("\n\n")[0].replace("\n", " ")
    return _linked(re.split(r"(?<=\.) (?=[A-Z])", text)[0].strip().removesuffix("."))


def _entry(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=name)
    examples = [line.replace("\n", " ").rstrip(".") for line in EXAMPLE.findall(command.help)]
    text = EXAMPLE.sub("", command.help).strip()
    parts = [f"### {name}\n", f"{_linked(text)}\n"]
    shown = [line for example in examples for line in re.split(r"; (?=cimemories )", example)]
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts.append("```console\n" + "\n".join([usage, *(f"$ {line}" for line in shown)]) + "\n```\n")
    own = (parameter for parameter in command.params if parameter.name != "workspace")  # named in the head
    records = filter(None, (parameter.get_help_record(context) for parameter in own))
    rows = [f"| {_code(names)} | {_linked(help_text)} |" for names, help_text in records]
    if rows:
        parts.append("| Option | Meaning |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _code(names: str) -> str:
    return "`" + names.replace("|", "\\|") + "`"


def _linked(text: str) -> str:
    """Help as Markdown: pages that it names as links, and nothing that would end a table's cell or open a tag."""
    text = text.replace("|", "\\|")
    text = re.sub(r"<(?!=)", "&lt;", text)
    return re.sub(r"docs/([a-z-]+)\.md", r"[\1](\1.md)", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
