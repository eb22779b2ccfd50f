"""The documentation: its reference of commands, its navigation, its links, and what the check of its site finds."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent


def script(name: str) -> Any:
    """A program of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_line_is_that_of_its_commands() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == script("cli").page(), "docs/cli.md is older than the commands: python docs/cli.py"
    # What tells that the writer finds anything: a command, one of a group, an example, an option, a page that is named.
    assert "\n### cimemories review status\n" in page
    assert "\n$ cimemories datasets freeze mine --by Ada\n" in page
    assert "| `--judge-prompt <list[str]>` | Judge prompt from a file, FILE:LEVEL ([formats](formats.md)). |" in page
    assert "survival" not in page  # hidden: the old name of `consensus`


def test_the_table_of_settings_is_that_of_their_fields() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == script("settings").page(), "docs/settings.md is older than the specs: python docs/settings.py"
    assert "| Samples n | `samples` | `--samples` | `5` |" in page and page.count("| `mitigations` |") == 1
    assert "| Votes per persona | `draws` | `--draws` | `10` |" in page and "| `--general` | `10` |" in page


def test_every_page_is_in_the_navigation() -> None:
    assert script("website").unlisted() == [], "docs/zensical.toml has to name each page in docs/"


def test_links_between_files_lead_somewhere() -> None:
    """README and its neighbours too, which are not on the site."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    seen, missing = 0, []
    for page in pages:
        for block in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
            for token in block.children or ():
                address = str(token.attrGet("href") or token.attrGet("src") or "")
                file = address.partition("#")[0]
                if file and "://" not in address:
                    seen += 1
                    missing += [] if (page.parent / file).is_file() else [f"{page.name}: {address}"]
    assert seen > 100 and not missing


def test_the_readme_leads_on_and_has_the_test_command() -> None:
    """CI runs `the README's test command`; every page is a few links from here."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n    make test " in text
    assert "docs/tour.md" in text and "docs/cli.md" in text


def test_the_check_names_what_leads_nowhere_or_loads_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    good = (
        '<h1 id="a-b">A</h1><a href="#a-b"></a><a href="deep/two.html#here%21"></a><a href="https://example.org"></a>'
    )
    (tmp_path / "index.html").write_text(f'{good}<img src="deep/x.png"><link rel="next" href="deep/">')
    (tmp_path / "deep" / "two.html").write_text('<a name="here!"></a><a href="/index.html#a-b"></a><a href="../"></a>')
    (tmp_path / "deep" / "index.html").write_text("")
    (tmp_path / "deep" / "x.png").touch()
    problems = script("website").problems
    assert list(problems(tmp_path)) == []

    (tmp_path / "deep" / "two.html").write_text(
        '<a href="gone.html"></a><a href="../index.html#c"></a><a href="../../etc.html"></a><img src="x.gif">'
        '<script src="https://cdn.example.org/a.js"></script><link rel="stylesheet" href="//fonts.example.org/b.css">'
    )
    assert sorted(problems(tmp_path)) == [
        "deep/two.html links to ../../etc.html, which is not there",
        "deep/two.html links to ../index.html#c, but there is no such heading",
        "deep/two.html links to gone.html, which is not there",
        "deep/two.html links to x.gif, which is not there",
        "deep/two.html loads //fonts.example.org/b.css",
        "deep/two.html loads https://cdn.example.org/a.js",
        "index.html links to deep/two.html#here%21, but there is no such heading",
    ]
