"""Exchange of people's decisions and comments on a dataset: decisions, marks, comments and audits, as events
(docs/review.md).

    export_events(store, "official", Path("ada.jsonl"), filters=Filters(annotator="Ada"))
    import_events(other_store, Path("ada.jsonl"))

An import adds the events that are not here yet, all of a file or nothing. Two workspaces that give each other their
events hold the same and come to the same labels, in whichever order.

One layout for JSON lines (all kinds in one file), CSV and Parquet (one file a kind in a folder):

    review.jsonl              {"event": "decision", "uid": "3f9a...", "dataset": "official", "profile": 0,
                               "attribute": "rent", "task": "Renew the lease", "recipient": "Landlord",
                               "annotator": "Ada", "label": "necessary", "created": "..."}
    review/decisions.csv      event,uid,dataset,...

An event needs event, profile (its ordinal, from 0), attribute, task, recipient, annotator, created and its content
(label, kind, text or verdict). All else may be left out. The kind of a file is recognised by its content. In CSV an
empty cell is null, and a text that a spreadsheet would run as a formula is written with an apostrophe before it, which
reading removes."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

from cimemories.access.roles import Role
from cimemories.formats.reading import Cells, FormatError, atomic_write, checked, rows
from cimemories.formats.tables import Table, one_of, table, write_rows
from cimemories.store import datasets, decisions
from cimemories.store.audits import AuditVerdict
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import EVENT_KINDS, EventPositions, ReviewImport, UidGenerator
from cimemories.store.engine import Connection, Store, StoreError, storable
from cimemories.store.reviews import MarkKind
from cimemories.store.team import log
from cimemories.text import FORMULA, count, listed, refused, shown

_WHERE = (
    "event:name uid:author? dataset:text? dataset_hash:text? simulated:truth? profile:integer profile_name:text? "
    "attribute:name domain:text? statement:text? task:name recipient:name annotator:author"
)
_SAYS = {
    "decision": (
        "label:label? reason:text? seconds:seconds? source:text? batch:text? blind:truth? guideline:text? cause:text?"
    ),
    "mark": "kind:mark reason:text? seconds:seconds?",
    "comment": "text:text resolves:text?",
    "audit": "run:name level:text? sample:integer verdict:verdict? reason:text? seconds:seconds? blind:truth?",
}


def _is_moment(text: str) -> str:
    if not moment(text):
        raise refused(f"must be a time, e.g. 2026-01-31T10:00:00Z, not '{shown(text)}'")
    return text


FIELDS: dict[str, Table] = {
    kind: table(
        kind,
        f"{_WHERE} {_SAYS[kind]} created:moment",
        mark=one_of(*MarkKind),
        verdict=one_of(*AuditVerdict),
        moment=Annotated[str, AfterValidator(_is_moment)],
    )
    for kind in EVENT_KINDS
}
# Null takes back an earlier decision, so it must be written.
_DECIDES = {"decision": "label", "audit": "verdict"}
_DEFAULTS = {"reason": "", "source": "single", "blind": False, "level": "full"}
LONGEST_EVENT = 1 << 20  # bytes of a line, or of a text in Parquet
Form = Literal["jsonl", "csv", "parquet"]
FORMS: tuple[Form, ...] = get_args(Form)
NAMES = {kind: f"{kind}s" for kind in EVENT_KINDS}
# Starts of a cell that a spreadsheet runs. The apostrophe is among them, so that a text's own is not removed.
_FORMULA = (*FORMULA, "'")
Event = dict[str, Any]


def checked_event(raw: Any, where: str, zone: tzinfo = UTC) -> Event:
    """Return an event with every field: missing ones are None or their default, the time in our form. zone: of a time
    that names none. Raises FormatError that names the field."""
    kind = raw.get("event") if isinstance(raw, dict) else None
    if kind not in EVENT_KINDS:
        raise FormatError(f"{where}: event must be one of {', '.join(EVENT_KINDS)}, not '{shown(kind)}'")
    event: Event = checked(FIELDS[kind].model, raw, where).model_dump()
    decides = _DECIDES.get(kind)
    if decides and decides not in raw:
        raise FormatError(f"{where}: {decides} is missing; null takes back the one before")
    if kind == "comment" and not event["text"].strip() and not event["resolves"]:
        raise FormatError(f"{where}: text is blank; a comment needs text")
    event |= {name: value for name, value in _DEFAULTS.items() if name in event and event[name] in (None, "")}
    return event | {"created": moment(event["created"], zone)}


def moment(text: str, zone: tzinfo = UTC) -> str:
    """Return a time as the record writes it, in UTC to the millisecond; '' for an invalid one. zone: of a time that
    names none; a date alone is its first moment."""
    try:
        time = datetime.fromisoformat(text.strip())
        time = (time.replace(tzinfo=zone) if time.tzinfo is None else time).astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def zone_of(text: str) -> tzinfo:
    """Return the time zone of a name such as Europe/Berlin, or of an offset such as +02:00. Raises FormatError."""
    try:
        offset = datetime.fromisoformat(f"2000-01-01T00:00{text}").tzinfo
    except ValueError:
        offset = None
    if offset is not None:
        return offset
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise FormatError(
            f"there is no time zone '{shown(text)}'; use a name such as Europe/Berlin, or an offset such as +02:00"
        ) from None


def write(path: Path, form: Form, events: Mapping[str, Sequence[Event]]) -> None:
    """Write the events of each kind to a path that does not exist yet: a file for JSON lines, else a folder."""
    if form == "jsonl":
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for kind in events:
                for event in events[kind]:
                    ordered = {name: event.get(name) for name in FIELDS[kind].names}
                    stream.write(json.dumps(ordered, ensure_ascii=False, allow_nan=False) + "\n")
        return
    path.mkdir()
    for kind, of_kind in events.items():
        file = path / f"{NAMES[kind]}.{form}"
        if form == "parquet":
            write_rows(file, FIELDS[kind], of_kind)
            continue
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, FIELDS[kind].names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in event.items()} for event in of_kind)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def read(path: Path, zone: tzinfo = UTC) -> Iterator[tuple[str, Event, bool]]:
    """Yield every event of a file, or of the files of a folder with our names: its location ('x.jsonl: line 3'),
    itself, and whether its time names a zone. Raises FormatError."""
    if path.is_dir():
        files = [path / f"{NAMES[kind]}.{form}" for kind in EVENT_KINDS for form in FORMS]
        if not any(file.is_file() for file in files):
            name = shown(path.name or path)
            raise FormatError(f"{name}: this folder holds no file of review events, such as decisions.csv")
        for file in files:
            if file.is_file():
                yield from read(file, zone)
        return

    def choose(names: Sequence[str]) -> Sequence[str]:
        if "event" not in names:
            first = ", ".join(shown(column) for column in names[:5])
            raise FormatError(f"{shown(path.name)}: no column is called 'event'; the first ones are: {first}")
        return names

    for where, raw in rows(path, choose, longest=LONGEST_EVENT):
        if isinstance(raw, Cells):
            for name, cell in raw.items():
                raw[name] = cell[1:] if cell and cell[0] == "'" and cell[1:].startswith(_FORMULA) else cell
        event = checked_event(raw, where, zone)
        yield where, event, datetime.fromisoformat(raw["created"].strip()).tzinfo is not None


@dataclass(frozen=True)
class Filters:
    """The filters of an export; None: all. A filter on a field that a kind of event lacks (source, blind) leaves that
    kind out. profile: its ordinal, from 0. since: a time or a date, inclusive. blind: only decisions made in blind
    mode. The event that resolves a comment is exported with the comment."""

    annotator: str | None = None
    source: str | None = None
    domain: str | None = None
    profile: int | None = None
    since: str | None = None
    blind: bool = False

    def __post_init__(self) -> None:
        if self.since is not None and not moment(self.since):
            raise FormatError(
                f"since must be a time, such as 2026-01-31 or 2026-01-31T10:00:00Z, not '{shown(self.since)}'"
            )

    def keeps(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event goes out."""
        names = ("annotator", "source", "domain", "profile")
        # A field that the kind lacks is None in the event, and so matches no value.
        matches = all(getattr(self, name) in (None, event.get(name)) for name in names)
        # Times of one form and one zone: as texts they sort as in time.
        since = moment(self.since) if self.since else ""
        return matches and event["created"] >= since and (not self.blind or bool(event.get("blind")))


def in_words(counts: Mapping[str, int]) -> str:
    """Return counts of events by kind as '3 decisions and undos, 1 comment'; '' without any. An undo is an event of
    its own, so that events are more than what stands."""
    undos = {
        "decision": ("decision or undo", "decisions and undos"),
        "audit": ("verdict or undo", "verdicts and undos"),
    }
    return ", ".join(count(number, *undos.get(kind, (kind,))) for kind, number in counts.items() if number)


@dataclass(frozen=True)
class Exported:
    """The outcome of an export: events by kind, and whether any refers to labels or runs of the simulator."""

    path: Path
    counts: Mapping[str, int]
    simulated: bool


@dataclass(frozen=True)
class Imported:
    """The outcome of an import. new, present (before it): events by kind. skipped: reasons for events without a match,
    more_skipped: how many others were skipped. notes: further remarks, as sentences. without_zone: events whose time
    named no zone."""

    datasets: tuple[str, ...]
    new: Mapping[str, int]
    present: Mapping[str, int]
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    more_skipped: int = 0
    without_zone: int = 0

    def zone_note(self, zone: str) -> str:
        """Say how many times were read in this zone because they named none; '' if all named theirs."""
        return f"{count(self.without_zone, 'time')} without a zone; read as {zone}" if self.without_zone else ""


def export_choices(store: Store, dataset_id: int) -> tuple[list[str], list[str]]:
    """Return the annotators and the domains that an export can be filtered by, in order."""
    with store.read() as connection:
        people = {d.annotator for d in decisions.history(connection, dataset_id)}
        return sorted(people), sorted(datasets.domains_of(connection, dataset_id))


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
    Raises StoreError for an unknown dataset, a path that is taken, unless it is a file and `replace`, and filters that
    match nothing at any time: an export since the last one may be empty, but a misspelt annotator never has an
    event."""
    if path.exists() and not (replace and path.is_file() and form == "jsonl"):
        raise StoreError(f"{path} is already there. Choose another name, or overwrite one file with --replace.")
    filters = filters or Filters()
    with store.read() as connection:
        row = datasets.by_name(connection, dataset)
        digest = datasets.dataset_hash(connection, row.id)
        events = {kind: _outgoing(connection, row, digest, kind, filters) for kind in EVENT_KINDS}
        if not any(events.values()):
            whenever = Filters(**{**vars(filters), "since": None})
            every = [event for kind in EVENT_KINDS for event in decisions.review_events(connection, row.id, kind)]
            if whenever != Filters() and not any(whenever.keeps(event) for event in every):
                people = sorted({str(event["annotator"]) for event in every})
                hint = f"Its events are by {listed(people)}." if people else "It has no events yet."
                raise StoreError(f"no event of '{row.name}' is what was asked for, so nothing was written. {hint}")
    with atomic_write(path) as target:
        write(target, form, events)
    log.note(store, "review.exported", row.name, events=sum(map(len, events.values())))
    simulated = any(event["simulated"] for rows in events.values() for event in rows)
    return Exported(path, {kind: len(rows) for kind, rows in events.items()}, simulated)


def _outgoing(connection: Connection, row: DatasetRow, digest: str, kind: str, filters: Filters) -> list[Event]:
    # Read whole: a resolution is kept with its comment, which may stand anywhere.
    every = list(decisions.review_events(connection, row.id, kind))
    chosen = {event["uid"] for event in every if not event.get("resolves") and filters.keeps(event)}
    return [
        {
            **event,
            "dataset": row.name,
            "dataset_hash": digest,
            "simulated": bool(event["simulated"] if kind == "audit" else row.simulated),
            **({"blind": bool(event["blind"])} if "blind" in event else {}),
        }
        for event in every
        if (event.get("resolves") or event["uid"]) in chosen
    ]


@dataclass
class _Target:
    """A dataset of this workspace with the events of a file for it."""

    row: DatasetRow
    digest: str
    positions: EventPositions
    events: list[Event] = field(default_factory=list)
    responses: dict[tuple[str, int, int, str, int], int] | None = None  # looked up for the first audit


class _Unwritten(Exception):
    """Ends the transaction of a dry run."""


def import_events(
    store: Store,
    path: Path,
    dataset: str | None = None,
    *,
    skip_unknown: bool = False,
    dry_run: bool = False,
    name: str = "",
    annotator: str = "",
    zone: str = "UTC",
) -> Imported:
    """Add the events of a file or folder that `export_events` wrote, or of the same layout, in one transaction.

    dataset: the dataset of the events; None: the one that each event names, by name and else by content hash. Raises
    FormatError in one line with file, line and field for an invalid event, and for one whose dataset, pair or run is
    not here: then nothing is imported, unless skip_unknown leaves the latter out. dry_run: report the outcome of an
    import without keeping it. name, annotator: the file's name (else its path) and who imports it, for `imports`, which
    lists what can be undone. zone: of times that name none (`zone_of`)."""
    incoming: list[Event] = []
    without_zone = 0
    uids = {kind: UidGenerator(kind) for kind in EVENT_KINDS}
    for location, event, names_zone in read(path, zone_of(zone)):
        without_zone += not names_zone
        # Derived from the content: importing the same file again gives the same uid, and adds nothing.
        event |= {"location": location, "uid": event["uid"] or uids[event["event"]].uid(event)}
        incoming.append(event)
    with suppress(_Unwritten), store.write(Role.CURATOR) as connection:
        targets, problems, notes = _matched(connection, incoming, dataset)
        if problems and not skip_unknown:
            more = f" ({len(problems):,} of {len(incoming):,} events match nothing here)" if len(problems) > 1 else ""
            raise FormatError(f"{problems[0]}{more}; nothing was imported. Skip such events with --skip-unknown")
        new, known, other = dict.fromkeys(EVENT_KINDS, 0), dict.fromkeys(EVENT_KINDS, 0), 0
        for target in targets:
            of = decisions.begin_import(connection, target.row.id, storable(name or path.name)[:200], annotator)
            for kind in EVENT_KINDS:
                if mine := [event for event in target.events if event["event"] == kind]:
                    done = decisions.merge_events(connection, target.row.id, kind, mine, of)
                    new[kind], known[kind], other = (
                        new[kind] + done.new,
                        known[kind] + done.present,
                        other + done.conflicting,
                    )
            decisions.end_import(connection, of)
        if dry_run:
            raise _Unwritten
        for target in targets:
            log.add(connection, "review.imported", target.row.name, file=name or path.name, events=sum(new.values()))
    if other:
        notes.append(f"{count(other, 'event')} left out: a different one here has the same uid and stays")
    names = tuple(target.row.name for target in targets)
    return Imported(names, new, known, tuple(problems), tuple(notes), without_zone=without_zone)


def imports(store: Store, dataset_id: int) -> list[ReviewImport]:
    """Return the imports of events into a dataset, newest first."""
    with store.read() as connection:
        return decisions.imports(connection, dataset_id)


def undo_import(store: Store, dataset_id: int, import_id: int, annotator: str) -> tuple[int, int]:
    """Remove the events of an import, except those that later ones build on; return how many were removed and how many
    kept. Raises StoreError if it was undone before."""
    with store.write(Role.CURATOR) as connection:
        done = decisions.undo_import(connection, dataset_id, import_id, annotator)
        log.add(connection, "review.import_undone", f"import {import_id}", removed=done[0], kept=done[1])
        return done


def _matched(
    connection: Connection, incoming: list[Event], dataset: str | None
) -> tuple[list[_Target], list[str], list[str]]:
    """Return the events by dataset, with ids; the reasons why others match nothing here; and notes on those that do."""
    rows = [datasets.by_name(connection, dataset)] if dataset else datasets.all_rows(connection)

    @cache
    def digest(row_id: int) -> str:
        return datasets.dataset_hash(connection, row_id)

    @cache  # thousands of events of a file name the same dataset
    def meant(name: str | None, content: str | None) -> DatasetRow | None:
        """Return the dataset of that name; else the only one with that content."""
        if dataset or (name is None and content is None):
            return rows[0] if len(rows) == 1 else None
        named = [row for row in rows if row.name == name]
        # Two copies have the same content: the intended one is unknown, so neither is taken.
        same = named or [row for row in rows if content is not None and digest(row.id) == content]
        return same[0] if len(same) == 1 else None

    targets: dict[int, _Target] = {}
    problems: list[str] = []
    changed: Counter[str] = Counter()
    for event in incoming:
        row = meant(event["dataset"], event["dataset_hash"])
        if row is None:
            name = event["dataset"]
            which = "names no dataset" if name is None else f"dataset '{shown(name)}' is not here"
            problems.append(f"{event['location']}: {which}; name one with --dataset")
            continue
        if row.id not in targets:
            targets[row.id] = _Target(row, digest(row.id), decisions.event_positions(connection, row.id))
        target = targets[row.id]
        if problem := _resolve_ids(connection, target, event):
            problems.append(f"{event['location']}: {problem}")
            continue
        target.events.append(event)
        if event["dataset_hash"] not in (None, target.digest):
            changed[row.name] += 1
    for target in targets.values():
        problems += _without_comment(connection, target)
    notes = [
        f"{count(number, 'event')} from another version of '{name}', with the same pairs as here"
        for name, number in changed.items()
    ]
    return list(targets.values()), problems, notes


def _resolve_ids(connection: Connection, target: _Target, event: Event) -> str:
    """Put the ids of this workspace into the event; return the mismatch, naming the field, or ''."""
    here, number = target.positions, event["profile"]
    of = f"'{shown(target.row.name)}'"
    if number not in here.names:
        return f"profile {number} is not in {of}, which has {len(here.names)}, from 0"
    if event["profile_name"] not in (None, here.names[number]):
        return f"profile_name '{shown(event['profile_name'])}' is not that of profile {number} in {of}"
    attribute = here.attributes.get((number, event["attribute"]))
    if attribute is None:
        return f"attribute '{shown(event['attribute'])}' is not in profile {number} of {of}"
    # A decision is about a statement: under another one of the same key it would mean something else.
    if event["statement"] not in (None, here.statements[attribute]):
        return f"statement of attribute '{shown(event['attribute'])}' is a different one in profile {number} of {of}"
    context = here.contexts.get((event["task"], event["recipient"]))
    if context is None or (number, context) not in here.tested:
        pair = f"task '{shown(event['task'])}' with recipient '{shown(event['recipient'])}'"
        return f"{pair} is not a context of profile {number} in {of}"
    event |= {"attribute_id": attribute, "context_id": context}
    if event["event"] == "audit":
        if target.responses is None:
            target.responses = decisions.event_responses(connection, target.row.id)
        flow = (event["run"], number, context, event["level"], event["sample"])
        if flow not in target.responses:
            return f"run '{shown(event['run'])}' has no sample {event['sample']} of this profile and context here"
        event["response_id"] = target.responses[flow]
    return ""


def _without_comment(connection: Connection, target: _Target) -> list[str]:
    """Remove from the target events that resolve a comment which is neither here nor in the file; return the
    reasons."""
    comments = {e["uid"] for e in target.events if e["event"] == "comment" and not e["resolves"]}
    comments |= decisions.comment_uids(connection, target.row.id)
    lost = [event for event in target.events if event.get("resolves") and event["resolves"] not in comments]
    uids = {event["uid"] for event in lost}
    target.events = [event for event in target.events if not (event.get("resolves") and event["uid"] in uids)]
    return [f"{e['location']}: resolves '{shown(e['resolves'])}': that comment is not here" for e in lost]
