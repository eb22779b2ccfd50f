"""A published site: runs as a folder of plain HTML that opens from the disk as well as from a web server.

    index.html          the leaderboard, which follows the threshold, the personas and the judge that a reader chooses
    heatmaps.html, leaks.html, accumulation.html, manifest.html
    leaderboard.json, settings.json, manifest.json     the same numbers in full, for scripts
    site.json           what was published, when, under which licence, and the names of all files

A page holds its style, its script and its data itself: on file:// a browser fetches nothing, and may not take a file
beside the page for one of the same origin. A policy in each page allows that one style and that one script, by their
hash, and nothing from anywhere. Sections, figures and tables are those of the report (report/results.py, methods.py).
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from cimemories.charts import svg
from cimemories.compare import leaderboard
from cimemories.compare.difference import takeaway
from cimemories.exchange.card import OWN_LICENCE
from cimemories.exchange.hub import FOREIGN, LICENCES
from cimemories.extras.site.settings import Settings, settings
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.formats.reading import atomic_write
from cimemories.leaks.examples import FULL, examples
from cimemories.leaks.gallery import SEVERITY, Facet
from cimemories.leaks.table import LeakRow, leak_rows
from cimemories.report import methods, render, results
from cimemories.report.collect import simulated_runs
from cimemories.report.document import Basis, Section, Shown, basis
from cimemories.store import datasets
from cimemories.store.engine import StoreError
from cimemories.text import count, listed, percent, visible, visible_in
from cimemories.version import __version__

LEAKS, MOST_LEAKS = 50, 200  # per run, and in all: reading the messages of one takes 30 ms
MARK = "site.json"
TEMPLATES = Path(__file__).parent / "templates"
OURS = ("offline", "demo")  # origins of datasets made from our own templates
PAGES = (
    ("index", "Leaderboard"),
    ("heatmaps", "Heatmaps"),
    ("leaks", "Leaks"),
    ("accumulation", "Accumulation"),
    ("manifest", "Methods and manifest"),
)


@dataclass(frozen=True)
class Place:
    """One run on the leaderboard as published. cells: violation, completeness and balanced score, each with its 95 %
    interval; counts: attributes, inappropriate flows, retained contexts."""

    run: str
    name: str
    rank: int | None
    cells: tuple[str, str, str]
    intervals: tuple[str, str, str]
    counts: tuple[int, int, int]


@dataclass(frozen=True)
class Site:
    """The content of the pages. settings: None if numbers under other settings are impossible, for the reason in
    `fixed`. warning: what to consider before publishing; '' if nothing. holds: the texts of the dataset that the site
    includes."""

    title: str
    subtitle: str
    produced: str
    simulated: str
    takeaway: str
    licence: str
    warning: str
    holds: str
    run_names: dict[str, str]
    violation_name: str
    places: tuple[Place, ...]
    outside: str
    settings: Settings | None
    fixed: str
    sections: Mapping[str, tuple[Section, ...]]
    leak_counts: Shown | None
    leaks: tuple[LeakRow, ...]
    severity: str
    files: Mapping[str, object]  # by name, the content to write as JSON


def collect_site(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    now: datetime,
    texts: bool = True,
    progress: Callable[[float, str], object] = lambda share, part: None,
) -> Site:
    """Return the site of these runs, all of one dataset. now: the text of the date line. texts: whether it includes
    messages, memory statements and names of users. The same record gives the same site apart from the date line. Raises
    StoreError without a run, for runs of several datasets, and for one run named twice."""
    progress(0.0, "leaderboard")
    report_basis = basis(flows, scopes, rule, texts=texts)
    board, run_names = report_basis.board, report_basis.marked_names
    try:
        choices, fixed = settings(report_basis), ""
    except StoreError as error:
        choices, fixed = None, str(error)
    parts: tuple[tuple[str, Callable[[], Sequence[Section | None]]], ...] = (
        ("index", lambda: [_headline(report_basis), results.comparison(report_basis)]),
        ("heatmaps", lambda: [results.heatmaps(report_basis)]),
        ("accumulation", lambda: [results.accumulated(report_basis)]),
        (
            "manifest",
            lambda: [
                results.coverage_section(report_basis),
                methods.methods(report_basis),
                methods.manifest(report_basis),
                methods.repeat(report_basis, "publish", "site"),
            ],
        ),
    )
    sections = {}
    for index, (name, part) in enumerate(parts):
        progress((1 + index) / (2 + len(parts)), name)
        sections[name] = tuple(section for section in part() if section is not None)
    progress((1 + len(parts)) / (2 + len(parts)), "leaks")
    leak_counts, leaks = _leaks(report_basis)
    progress(1.0, "done")
    with flows.store.read() as connection:
        row = datasets.by_name(connection, scopes[0].dataset_name)
    licence = LICENCES.get(row.origin) or (OWN_LICENCE if row.origin == "generated" else FOREIGN)
    holds = _holds(report_basis, leaks)
    shown = {scope.run.id for scope in board.ordered(scopes)[0]}
    names = list(run_names.values())
    return Site(
        title=f"CIMemories: {scopes[0].dataset_name}",
        subtitle=f"{listed(names) if len(names) < 4 else count(len(names), 'run')} on the dataset "
        f"{scopes[0].dataset_name}, {count(max(line.numbers.profiles for line in report_basis.lines), 'profile')}",
        produced=f"Made on {now.astimezone(UTC):%Y-%m-%d at %H:%M} UTC by CIMemories Studio {__version__}",
        simulated=simulated_runs(report_basis),
        takeaway=takeaway(flows, board, run_names),
        licence=licence,
        warning="" if row.origin in OURS else f"{licence} {holds}",
        holds=holds,
        run_names=run_names,
        violation_name=board.violation_name,
        # If no run has a rank, the one whose settings a reader moves.
        places=tuple(_place(line, run_names[line.run.id]) for line in board.lines if line.run.id in shown),
        outside=_outside(report_basis),
        settings=choices,
        fixed=fixed,
        sections=sections,
        leak_counts=leak_counts,
        leaks=leaks,
        severity=listed(SEVERITY),
        files={
            "leaderboard.json": board.as_json(),
            "settings.json": choices.as_json() if choices else None,
            "manifest.json": {line.run.id: methods.public(line.run.manifest.recorded) for line in report_basis.lines},
        },
    )


def _headline(report_basis: Basis) -> Section:
    section = results.headline_section(report_basis)
    return replace(section, blocks=(*results.picture(report_basis), *section.blocks))


def _place(line: leaderboard.Line, name: str) -> Place:
    bounds = (line.violation, line.completeness, line.balanced)
    violation, completeness, balanced = (percent(item.value) for item in bounds)
    intervals = [leaderboard.bounds_text(item) for item in bounds]
    return Place(
        line.run.id,
        name,
        line.rank,
        (violation, completeness, balanced),
        (intervals[0], intervals[1], intervals[2]),
        (line.counted.attributes, line.counted.flows, line.retained),
    )


def _outside(report_basis: Basis) -> str:
    """Say which runs are not ranked, and why; '' if all are."""
    reasons = [f"{report_basis.run_names[line.run.id]} ({line.outside})" for line in report_basis.board.outside]
    return f"Not ranked here: {'; '.join(reasons)}." if reasons else ""


def _leaks(report_basis: Basis) -> tuple[Shown | None, tuple[LeakRow, ...]]:
    """Return the number of leaked flows of each run, and the severest of each; without texts only the number."""
    leaks = examples(report_basis.flows, report_basis.scopes)
    if not leaks.number:
        return None, ()
    counts = results.leak_counts(report_basis, leaks)
    if not report_basis.texts:
        return counts, ()
    of_each = max(1, min(LEAKS, MOST_LEAKS // len(report_basis.scopes)))
    # Severest first, so the first of each run are shown. Claims of less than all of it violate nothing.
    of_runs = [leaks.page({**FULL, Facet.RUN: [scope.run.id]}, 0, of_each) for scope in report_basis.scopes]
    chosen = pd.concat([frame for frame in of_runs if len(frame)] or of_runs[:1]).sort_index()
    return counts, tuple(leak_rows(report_basis.flows, {scope.run.id: scope for scope in report_basis.scopes}, chosen))


def _holds(report_basis: Basis, leaks: Sequence[LeakRow]) -> str:
    """Say which texts of the dataset and of models the site includes."""
    if not report_basis.texts:
        return "The site holds no message, memory statement or name of a user."
    people, known = ({getattr(leak, name) for leak in leaks} for name in ("profile", "statement"))
    return (
        f"The site holds {count(len(leaks), 'excerpt')} of messages, {count(len(known), 'memory statement')} about "
        f"{count(len(people), 'user')}, and tasks and recipients; --no-texts leaves messages and statements out."
    )


# ---- as files


def files_of(site: Site) -> dict[str, bytes]:
    """Return every file of the site by its name. The same site gives the same bytes."""
    sheets = (render.TEMPLATES / "report.css", TEMPLATES / "site.css")
    style = "".join(sheet.read_text(encoding="utf-8") for sheet in sheets) + svg.STYLE
    files: dict[str, bytes] = {}
    # The data of the leaderboard's script.
    intervals = {item.run: item.intervals for item in site.places}
    looked_up = (site.settings.shown() if site.settings else {}) | {"names": site.run_names, "intervals": intervals}
    for name, title in PAGES:
        # Two pages have their own template and, with settings to choose, their own script.
        has_template = name in ("index", "leaks")
        active = bool(site.settings if name == "index" else has_template and site.leaks)
        script = (TEMPLATES / f"site-{name}.js").read_text(encoding="utf-8") if active else ""
        template = render.environment(TEMPLATES).get_template(f"site-{name if has_template else 'page'}.html.jinja")
        html = template.render(
            site=site,
            pages=PAGES,
            name=name,
            title=title,
            style=Markup(style),
            script=Markup(script),
            policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
            "form-action 'none'",
            data=Markup(_inert(looked_up)) if name == "index" and site.settings else None,
            domains={leak.domain: leak.domain.replace("_", " ") for leak in site.leaks},
        )
        files[f"{name}.html"] = svg.printable(visible(html)).encode()
    files |= {name: _json(value) for name, value in site.files.items() if value is not None}
    files[MARK] = _json(
        {
            "software": f"CIMemories Studio {__version__}",
            "produced": site.produced,
            "runs": list(site.run_names),
            "simulated": site.simulated,
            "licence": site.licence,
            "holds": site.holds,
            "files": sorted([*files, MARK]),
        }
    )
    return files


def _inert(value: object) -> str:
    """Return JSON that cannot end the element it stands in, nor begin another."""
    text = json.dumps(visible_in(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _json(value: object) -> bytes:
    return (json.dumps(visible_in(value), ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode()


def _hash(text: str) -> str:
    """Return the source expression by which a content security policy allows a style or a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---- writing


def check_folder(folder: Path, *, force: bool) -> None:
    """Raise StoreError, before any work is done, if the folder cannot be made, is a file, or holds anything but a site
    of ours; a site alone is replaced with `force`."""
    if not folder.parent.is_dir():
        raise StoreError(f"there is no folder {folder.parent}. Make it first, or name another one.")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StoreError(f"{folder} is no folder. Name one that is new, empty, or a site published before.")
    there = {item.name for item in folder.iterdir()} if folder.exists() else set()
    if not there:
        return
    if other := sorted(there - _published(folder)):
        named = listed([visible(name) for name in other[:3]])
        raise StoreError(
            f"{folder} holds other things than a published site ({named}) and stays as it is. Name a new folder."
        )
    if not force:
        raise StoreError(f"{folder} holds a site already. Name another folder, or add --force to replace it.")


def _published(folder: Path) -> set[str]:
    """Return the names of the files that a site in this folder was written with; empty without a site."""
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
        return {name for name in mark["files"] if (folder / name).is_file() and not (folder / name).is_symlink()}
    except (OSError, ValueError, TypeError, KeyError):
        return set()


def write_site(site: Site, folder: Path, *, force: bool = False) -> int:
    """Write the site; returns its bytes. All files are written into a folder beside, which then takes the name: there
    is never half a site. Raises StoreError as `check_folder` does, and if the system refuses."""
    files = files_of(site)
    # Again, though a caller has checked before: collecting takes a while.
    check_folder(folder, force=force)
    with atomic_write(folder) as draft:
        draft.mkdir()
        for name, content in files.items():
            (draft / name).write_bytes(content)
        shutil.rmtree(folder, ignore_errors=True)
    return sum(map(len, files.values()))
