"""Exchange of what people said of a dataset: decisions, marks, comments and audits, as events (docs/review.md).

    export_events(store, "official", Path("ada.jsonl"), filters=Filters(annotator="Ada"))
    import_events(other_store, Path("ada.jsonl"))

An import adds the events that are not here yet, all of a file or nothing. Two workspaces that give each other their
events hold the same and come to the same labels, whoever began.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cimemories.formats.errors import FormatError
from cimemories.formats.official_records import shown
from cimemories.formats.review_events_fields import completed, moment, problem_of
from cimemories.formats.review_events_files import Event, Form, read, write
from cimemories.store import datasets, review_merge
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.store.review_merge import KINDS, Merged, Nameless, Places


@dataclass(frozen=True)
class Filters:
    """What goes out; None: all. A filter on what a kind of event does not have (source, blind) leaves that kind out.

    profile: its ordinal, from 0. since: a time or a date, itself included. blind: only what was said in blind mode.
    What resolves a comment goes with the comment, whoever said it."""

    annotator: str | None = None
    source: str | None = None
    domain: str | None = None
    profile: int | None = None
    since: str | None = None
    blind: bool = False

    def __post_init__(self) -> None:
        if self.since is not None and not moment(self.since):
            raise FormatError(f"since: '{shown(self.since)}' is no time; write e.g. 2026-01-31 or 2026-01-31T10:00:00Z")

    def keeps(self, event: Mapping[str, Any]) -> bool:
        """Whether an event goes out."""
        wanted = ("annotator", "source", "domain", "profile")
        good = all(getattr(self, name) in (None, event.get(name)) for name in wanted)
        since = moment(self.since) if self.since else ""
        return good and event["created"] >= since and (not self.blind or bool(event.get("blind")))


@dataclass(frozen=True)
class Exported:
    """What was written: events by kind, and whether any refers to labels or runs of the simulator."""

    path: Path
    counts: Mapping[str, int]
    simulated: bool


@dataclass(frozen=True)
class Imported:
    """What came of an import. `new` and `known` by kind; `skipped`: events that match nothing here, in words."""

    datasets: tuple[str, ...]
    new: Mapping[str, int]
    known: Mapping[str, int]
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def export_events(
    store: Store,
    dataset: str,
    path: Path,
    form: Form = "jsonl",
    filters: Filters | None = None,
    *,
    replace: bool = False,
) -> Exported:
    """Write the events of a dataset, whole or not at all: one file of JSON lines, or a folder with one table a kind.

    Raises StoreError for a dataset that is not there or a path that is taken, unless it is a file and `replace`."""
    if path.exists() and not (replace and path.is_file() and form == "jsonl"):
        raise StoreError(f"{path}: there is something of that name. Choose another, or for one file say --replace.")
    asked = filters or Filters()
    with store.read() as connection:
        row = datasets.named(connection, dataset)
        digest = datasets.dataset_hash(connection, row.id)
        found = {kind: _outgoing(connection, row, digest, kind, asked) for kind in KINDS}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".export-", dir=path.parent))
    try:
        write(draft / "export", form, found)
        (draft / "export").replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror or error}). Nothing was kept of it.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    simulated = any(event["simulated"] for kind in found for event in found[kind])
    return Exported(path, {kind: len(rows) for kind, rows in found.items()}, simulated)


def _outgoing(connection: sa.Connection, row: DatasetRow, digest: str, kind: str, filters: Filters) -> list[Event]:
    every = list(review_merge.events(connection, row.id, kind))
    kept = {event["uid"] for event in every if not event.get("resolves") and filters.keeps(event)}
    return [
        {
            **event,
            "dataset": row.name,
            "dataset_hash": digest,
            "simulated": bool(event["simulated"] if kind == "audit" else row.simulated),
            **({"blind": bool(event["blind"])} if "blind" in event else {}),
        }
        for event in every
        if (event.get("resolves") or event["uid"]) in kept
    ]


@dataclass
class _Incoming:
    """The events for one dataset of this workspace."""

    row: DatasetRow
    places: Places
    digest: str
    responses: dict[tuple[str, int, int, str, int], int] | None = None
    events: list[Event] = field(default_factory=list)


def import_events(store: Store, path: Path, dataset: str | None = None, *, skip_unknown: bool = False) -> Imported:
    """Add the events of a file or folder that `export_events` wrote, or that is laid out so, in one transaction.

    dataset: whose events they are; what each event says where None, by name and else by content hash. Raises
    FormatError in one line with file, line and field for an event that is none, and for one whose dataset, pair or run
    is not here: then nothing is imported, unless skip_unknown leaves the latter out.
    """
    checked: list[Event] = []
    nameless = {kind: Nameless(kind) for kind in KINDS}
    for place, raw in read(path):
        problem = problem_of(raw)
        if problem:
            raise FormatError(f"{place}: {problem}")
        event = {**completed(raw), "place": place}
        event["uid"] = event["uid"] or nameless[event["event"]].uid(event)
        checked.append(event)
    with store.write() as connection:
        targets, problems, changed = _matched(connection, checked, dataset)
        if problems and not skip_unknown:
            more = f" ({len(problems):,} of {len(checked):,} events match nothing here)" if len(problems) > 1 else ""
            raise FormatError(f"{problems[0]}{more}; nothing was imported. Leave such events out with --skip-unknown")
        totals = dict.fromkeys(KINDS, Merged(0, 0, 0))
        for target in targets:
            for kind in KINDS:
                mine = [event for event in target.events if event["event"] == kind]
                done = review_merge.merge(connection, target.row.id, kind, mine) if mine else Merged(0, 0, 0)
                totals[kind] = Merged(*(a + b for a, b in zip(_counts(totals[kind]), _counts(done), strict=True)))
    other = sum(item.other for item in totals.values())
    if other:
        changed.append(f"{other:,} events have the uid of one that is here and says something else; that one stays")
    return Imported(
        tuple(target.row.name for target in targets),
        {kind: item.new for kind, item in totals.items()},
        {kind: item.known for kind, item in totals.items()},
        tuple(problems),
        tuple(changed),
    )


def _counts(item: Merged) -> tuple[int, ...]:
    return tuple(getattr(item, part.name) for part in fields(item))


def _matched(
    connection: sa.Connection, checked: list[Event], asked: str | None
) -> tuple[list[_Incoming], list[str], list[str]]:
    """The events by dataset, with ids; which match nothing here and why; and what should be known of the others."""
    rows = [datasets.named(connection, asked)] if asked else datasets.all_rows(connection)
    digests: dict[int, str] = {}
    targets: dict[int, _Incoming] = {}
    problems: list[str] = []
    changed: dict[int, int] = {}
    known: dict[tuple[str | None, str | None], DatasetRow | None] = {}
    for event in checked:
        place = event["place"]
        named = (event["dataset"], event["dataset_hash"])
        if named not in known:
            known[named] = rows[0] if asked else _dataset(connection, rows, digests, *named)
        row = known[named]
        if row is None:
            problems.append(f"{place}: dataset '{shown(event['dataset'])}' is not here; name one with --dataset")
            continue
        if row.id not in targets:
            digest = digests.get(row.id) or datasets.dataset_hash(connection, row.id)
            targets[row.id] = _Incoming(row, review_merge.places(connection, row.id), digest)
        target = targets[row.id]
        problem = _placed(connection, target, event)
        if problem:
            problems.append(f"{place}: {problem}")
            continue
        target.events.append(event)
        if event["dataset_hash"] not in (None, target.digest):
            changed[row.id] = changed.get(row.id, 0) + 1
    for target in targets.values():
        problems += _unsettled(connection, target)
    notes = [
        f"{count:,} events are of another state of '{targets[i].row.name}'; their pairs are the same here"
        for i, count in changed.items()
    ]
    return list(targets.values()), problems, notes


def _dataset(
    connection: sa.Connection, rows: list[DatasetRow], digests: dict[int, str], name: str | None, digest: str | None
) -> DatasetRow | None:
    """By name; else by content, where exactly one is the same."""
    for row in rows:
        if name is not None and row.name == name:
            return row
    if digest is None:
        return rows[0] if name is None and len(rows) == 1 else None
    for row in rows:
        digests.setdefault(row.id, datasets.dataset_hash(connection, row.id))
    same = [row for row in rows if digests[row.id] == digest]
    return same[0] if len(same) == 1 else None


def _placed(connection: sa.Connection, target: _Incoming, event: Event) -> str:
    """Put the ids of this workspace into the event; what does not match, naming the field, '' where all does."""
    here, number = target.places, event["profile"]
    of = f"'{shown(target.row.name)}'"
    if number not in here.names:
        return f"profile {number} is not in {of}, which has {len(here.names)}, from 0"
    if event["profile_name"] not in (None, here.names[number]):
        return f"profile_name '{shown(event['profile_name'])}' is not that of profile {number} in {of}"
    attribute = here.attributes.get((number, event["attribute"]))
    if attribute is None:
        return f"attribute '{shown(event['attribute'])}' is not in profile {number} of {of}"
    if event["statement"] not in (None, here.statements[attribute]):
        return f"statement of attribute '{shown(event['attribute'])}' is another one in profile {number} of {of}"
    context = here.contexts.get((event["task"], event["recipient"]))
    if context is None or (number, context) not in here.tested:
        words = f"task '{shown(event['task'])}' with recipient '{shown(event['recipient'])}'"
        return f"{words} is no context of profile {number} in {of}"
    event |= {"attribute_id": attribute, "context_id": context}
    if event["event"] == "audit":
        if target.responses is None:
            target.responses = review_merge.responses(connection, target.row.id)
        flow = (event["run"], number, context, event["level"], event["sample"])
        if flow not in target.responses:
            return f"run '{shown(event['run'])}' has no sample {event['sample']} of this profile and context here"
        event["response_id"] = target.responses[flow]
    return ""


def _unsettled(connection: sa.Connection, target: _Incoming) -> list[str]:
    """Events that resolve a comment which is neither here nor in the file; they are taken out of the target."""
    asked = [event for event in target.events if event.get("resolves")]
    if not asked:
        return []
    comments = {e["uid"] for e in target.events if e["event"] == "comment" and not e["resolves"]}
    there = review_merge.comment_uids(connection, target.row.id) | comments
    lost = {event["uid"] for event in asked if event["resolves"] not in there}
    target.events = [event for event in target.events if not (event.get("resolves") and event["uid"] in lost)]
    return [
        f"{e['place']}: resolves '{shown(e['resolves'])}': that comment is not here" for e in asked if e["uid"] in lost
    ]
