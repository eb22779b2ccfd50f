"""Build the documentation's website into docs/site, and check it:

    python docs/website.py

Zensical's strict mode ends the build at links to pages and headings that are not there. Of files and of what programs
write as HTML it knows nothing: so every link of the built pages is followed, too. No page may load anything from
elsewhere, and every page must be in the navigation (docs/zensical.toml).
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

DOCS = Path(__file__).resolve().parent
SETTINGS = DOCS / "zensical.toml"
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}


class _Page(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADS.get(tag) in given:
            self.loads.append(given[LOADS[tag]])


def build() -> None:
    """Write docs/site by Zensical. Raises SystemExit where it finds something wrong."""
    program = Path(sysconfig.get_path("scripts")) / "zensical"
    command = [program, "build", "--config-file", SETTINGS, "--clean", "--strict"]
    ended = subprocess.run(command, cwd=DOCS, capture_output=True, text=True)
    # It colours each character, whoever reads it; what follows its count of issues is its own traceback.
    output = re.sub(r"\x1b\[[\d;]*m", "", ended.stdout + ended.stderr).split("Traceback (most recent")[0]
    print(output.strip())  # noqa: T201
    if ended.returncode:
        sys.exit(ended.returncode)


def problems(site: Path) -> Iterator[str]:
    """Of every built page: links and anchors that lead nowhere, and what it would load from elsewhere."""
    site = site.resolve()
    pages = {file: _Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        name = file.relative_to(site)
        yield from (f"{name} loads {address}" for address in page.loads if urlsplit(address).netloc)
        for address in dict.fromkeys(page.links + page.loads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            # What begins with / is of the site's root: the page of a missing address has such links.
            base = site if parts.path.startswith("/") else file.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_relative_to(site) or not target.is_file():
                yield f"{name} links to {address}, which is not there"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name} links to {address}, but there is no such heading"


def unlisted() -> list[str]:
    """Pages that the navigation lacks, and those that it names and that are not there."""

    def named(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for each in entry.values() if isinstance(entry, dict) else entry:
                yield from named(each)

    listed = set(named(tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["project"]["nav"]))
    return sorted(listed ^ {file.name for file in DOCS.glob("*.md")})


def main() -> None:
    build()
    wrong = [f"{name}: a page and the navigation of docs/zensical.toml differ" for name in unlisted()]
    wrong += problems(DOCS / "site")
    if wrong:
        sys.exit("\n".join(["the documentation cannot be published:", *wrong]))


if __name__ == "__main__":
    main()
