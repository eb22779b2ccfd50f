"""Editing a dataset by hand, with history. What labels, decisions or runs depend on is kept: an edit of it is saved as
the next version of the dataset, so that every number that was ever shown can be computed again.

    plan = editing.plan(store, dataset_id, edit)      # what would happen: plan.sentences
    saved = editing.save(store, dataset_id, edit, annotator="Ada", reason="typo", expected=plan)

The labelling prompt of a profile holds all its statements: a change of one touches all votes on that profile, and no
other. A context is in its own calls only. Calls are recorded under what was sent, so labelling a new version asks
only for what changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import sqlalchemy as sa
from pydantic_core import PydanticCustomError

from cimemories.access.roles import Role
from cimemories.formats.official import checked_value as read_value
from cimemories.formats.reading import checked_text
from cimemories.model import (
    DOMAINS,
    GENERAL,
    LONGEST_NAME,
    LONGEST_STATEMENT,
    Attribute,
    Context,
    Profile,
    Value,
    canonical_event,
)
from cimemories.seeds import packs
from cimemories.store import datasets, labellings, versions
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, storable
from cimemories.store.team import log
from cimemories.store.versions import Edit, EditRow, Kind, Rests, Side
from cimemories.text import count, listed


@dataclass(frozen=True)
class Needs:
    """The pairs that a change leaves without votes: all attributes of some profiles with some contexts."""

    profiles: int
    attributes: int  # of all these profiles together
    contexts: int

    @property
    def pairs(self) -> int:
        return self.attributes * self.contexts


@dataclass(frozen=True)
class Plan:
    """The consequences of saving a change. target: the dataset that will hold it; imported: labellings whose shares
    came from a file; who: the profile's name, or 'all profiles'; calls: of a labelling like the newest one, or None."""

    dataset: str
    target: str
    rests: Rests
    imported: int
    newer: tuple[str, ...]  # versions that were made from this one already
    kind: Kind
    owner: str
    profiles: int
    needs: Needs
    draws: int | None
    calls: int | None

    @property
    def in_place(self) -> bool:
        return self.target == self.dataset

    @property
    def sentences(self) -> list[str]:
        """Return what a person should know before saving, one sentence each."""
        name = f"'{self.dataset}'"
        if self.in_place:
            return [f"Nothing depends on {name} yet, so your change is made in place. Its history keeps both sides."]
        rests = self.rests
        sentences = [f"{name} is frozen, so it stays as it is."] if rests.frozen else []
        if counts := rests.counted:
            depend = "depends" if len(counts) == 1 and counts[0].startswith("1 ") else "depend"
            sentences.append(f"{listed(counts)} {depend} on {name}, so it stays as it is.")
        if self.newer:
            were = "was" if len(self.newer) == 1 else "were"
            names = listed([f"'{version}'" for version in self.newer])
            sentences.append(f"{names} {were} made from {name} and will not have your change.")
        sentences.append(f"Your change is saved as '{self.target}'{self._votes_needed()}.")
        if self.imported:
            sentences.append(f"Labels imported from a file stay with {name}: '{self.target}' starts without them.")
        if rests.decisions:
            sentences.append("Decisions on pairs that stay the same are copied.")
        return sentences

    def _votes_needed(self) -> str:
        """Return what a labelling of the new version would have to ask for, or ''."""
        needs = self.needs
        if self.draws is None:
            return ""
        if not needs.pairs:
            return "; none of its pairs needs new votes, and a labelling by the same model is answered from the record"
        calls = f"{count(self.calls, 'call')} at {self.draws} draws"
        if self.kind == "context":
            where = f"{count(needs.profiles, 'profile')}" if needs.profiles != 1 else self.owner
            pairs = f"the {count(needs.pairs, 'pair')} of the new context in {where} need votes ({calls})"
            return f"; there {pairs}, all others are answered from the record"
        pairs = f"all {needs.attributes:,} x {needs.contexts} pairs of {self.owner} need new votes ({calls})"
        others = self.profiles - needs.profiles
        rest = f", the other {others:,} {'profile is' if others == 1 else 'profiles are'} answered from the record"
        return f"; there {pairs}{rest if others else ''}"


# ---- fields: what may be in them, and how a typed value is written in one line of text


KNOWN_DOMAINS = (GENERAL, *DOMAINS)
# Shorter than what a file may hold (formats.official), since people read it.
LONGEST_KEY = 120
LONGEST_TEXT = 4000
OLDEST = 130


def edit_line(text: str) -> str:
    """Return one line of text as it is stored: runs of space are one, characters that no engine can hold are
    replaced."""
    return " ".join(storable(text).split())


def value_text(value: Value) -> str:
    """Return a typed value as people write it: text as it is, everything else, and text that would be read as something
    else, as JSON. `parse_value` reads it back."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    # Only what parse_value gives back unchanged may stand without quotes.
    as_written = value == value.strip() and value and parse_value(value) == value
    return value if as_written else json.dumps(value, ensure_ascii=False)


def parse_value(text: str) -> Value:
    """Return what was typed as a value: JSON if it is JSON (1450, true, null, ["a", "b"], "1450"), else text. Raises
    StoreError for JSON that no attribute can hold: an object, or lists deeper than one of flat objects."""
    written = storable(text.strip())
    try:
        value = json.loads(written)
        # NaN, Infinity, and 1e999, which Python reads as numbers, are text here: JSON has none.
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return written
    items = value if isinstance(value, list) else [value]
    scalars = [i for item in items for i in (item.values() if isinstance(item, dict) and value is items else (item,))]
    if any(isinstance(item, dict | list) for item in scalars):
        raise StoreError(
            "a value can be text, a number, true, false, null or a list of these (or of flat objects). "
            'Write anything else as text in quotes, e.g. "{like this}".'
        )
    return cast(Value, value)


def checked_value(edit: Edit) -> Edit:
    """Return the change with its new side brought into shape. Raises StoreError that names the first field that no file
    could hold, or says that nothing would change."""
    if edit.after is None:
        return edit
    before: Mapping[str, object] = edit.before or {}
    shape = {"attribute": _attribute, "context": _context, "bio": _bio}[edit.kind]
    after = {**edit.after, **shape(edit.after, before)}
    names = [name for name in after if name not in ("ordinal", "places")]
    if edit.before is not None and all(_same(after[name], before.get(name)) for name in names):
        raise StoreError("nothing would change: both sides are the same. Change a field, or leave it.")
    # By the readers' own rules: what they refuse could be saved, and then neither exported nor imported anywhere.
    for name, read in _READ[edit.kind].items():
        # What was not touched may stay as it is, so that every other field of it can still be edited.
        if name not in before or not _same(after[name], before[name]):
            try:
                read(after[name])
            except PydanticCustomError as refused:
                raise StoreError(f"{name}: it {refused.message()}.") from None
    return replace(edit, after=after)


_READ: dict[Kind, dict[str, Callable[[object], object]]] = {
    "attribute": {
        "key": checked_text,
        "value": read_value,
        "event": checked_text,
        "statement": lambda value: checked_text(value, LONGEST_STATEMENT),
    },
    "context": {"task": checked_text, "recipient": checked_text, "sphere": checked_text},
    "bio": {"name": checked_text, "sex": checked_text, "address": checked_text},
}


def _same(one: object, other: object) -> bool:
    return json.dumps(one) == json.dumps(other)  # 1, 1.0 and true are three values


def _attribute(side: Side, before: Side) -> dict[str, object]:
    domain = str(side["domain"])
    if domain not in KNOWN_DOMAINS and domain != before.get("domain"):
        raise StoreError(f"domain: '{domain}' is not one of {', '.join(KNOWN_DOMAINS)}. Choose one of them.")
    size = len(value_text(cast(Value, side["value"])))
    # What was imported longer may stay as it is; it only cannot be made so by hand.
    if size > LONGEST_TEXT and not _same(side["value"], before.get("value")):
        raise StoreError(f"value: this has {size:,} characters, the most is {LONGEST_TEXT:,}. Shorten it.")
    event = _kept(side, before, "event", lambda text: canonical_event(storable(text)) or GENERAL)
    return {
        "key": _required(side, before, "key", "a key", LONGEST_KEY),
        "value": side["value"],
        "domain": domain,
        "event": event,
        "statement": _required(side, before, "statement", "a memory statement, in the first person", LONGEST_TEXT),
    }


def _context(side: Side, before: Side) -> dict[str, object]:
    sphere = side.get("sphere")
    return {
        "task": _required(side, before, "task", "a task", LONGEST_NAME),
        "recipient": _required(side, before, "recipient", "a recipient", LONGEST_NAME),
        "sphere": edit_line(str(sphere)) or None if sphere is not None else None,
    }


def _bio(side: Side, before: Side) -> dict[str, object]:
    age = side["age"]
    if not isinstance(age, int) or isinstance(age, bool) or not 0 <= age <= OLDEST:
        raise StoreError(f"age: give whole years from 0 to {OLDEST}.")
    return {
        "name": _required(side, before, "name", "a name", LONGEST_KEY),
        "sex": _kept(side, before, "sex", edit_line),
        "address": _kept(side, before, "address", lambda text: storable(text.strip())),
        "age": age,
    }


def _required(side: Side, before: Side, name: str, what: str, longest: int) -> str:
    text = _kept(side, before, name, edit_line)
    if not text:
        raise StoreError(f"{name}: {what} is needed. Fill it in and save again.")
    if len(text) > longest and text != before.get(name):
        raise StoreError(f"{name}: this has {len(text):,} characters, the most is {longest:,}. Shorten it.")
    return text


def _kept(side: Side, before: Side, name: str, shape: Callable[[str], str]) -> str:
    """Return a field in shape; an untouched one stays to the byte, however it was imported."""
    text = str(side[name])
    return text if text == before.get(name) else shape(text)


# ---- saving


@dataclass(frozen=True)
class Saved:
    """A saved change: the dataset that holds it, and decisions that went along or could not."""

    dataset: int
    name: str
    edit: int
    in_place: bool
    carried: int
    left_behind: int


FIELDS: dict[Kind, tuple[str, ...]] = {
    "attribute": ("key", "value", "domain", "event", "statement"),
    "context": ("task", "recipient", "sphere"),
    "bio": ("name", "sex", "address", "age"),
}


def edit_of(
    kind: Kind,
    profile: int | None,
    before: Attribute | Context | Profile | None,
    after: Attribute | Context | Profile | None,
) -> Edit:
    """Return the edit that adds (no before), changes or removes (no after) an attribute or a context, or changes the
    name, sex, address or age of a profile. profile: its ordinal; None for a context of all."""
    action: versions.Action = "add" if before is None else "remove" if after is None else "change"
    sides = [None if item is None else {name: getattr(item, name) for name in FIELDS[kind]} for item in (before, after)]
    return Edit(kind, action, profile, *sides)


def plan(store: Store, dataset_id: int, edit: Edit) -> Plan:
    """Return what saving this change would do. Raises StoreError for a change that is not valid, or a dataset that is
    gone."""
    checked = checked_value(edit)
    with store.read() as connection:
        return _plan(connection, dataset_id, checked)


def save(
    store: Store, dataset_id: int, edit: Edit, *, annotator: str, reason: str = "", expected: Plan | None = None
) -> Saved:
    """Make a change, in the dataset or in its next version, with its history; all of it or nothing.

    expected: the plan that was shown; nothing is written if the change would go elsewhere by now. Raises StoreError
    then, for a change that is not valid, changes nothing, or whose `before` is not what the record has, and without a
    name.
    """
    who = edit_line(annotator)
    if not who:
        raise StoreError("a change needs the name of who makes it. Enter yours and save again.")
    checked = checked_value(edit)
    with store.write(Role.CURATOR) as connection:
        versions.lock(connection, dataset_id)
        # Planned again under the lock: what was shown may have gone out of date since.
        now = _plan(connection, dataset_id, checked)
        if expected is not None and expected.target != now.target:
            raise StoreError(
                f"'{now.dataset}' has changed since you looked at it: your change would now be saved as '{now.target}' "
                f"and not as '{expected.target}'. Nothing was saved: look at its versions, then decide."
            )
        if now.in_place:
            done = versions.apply_edit(connection, dataset_id, checked)
            row = versions.add(connection, dataset_id, done, annotator=who, reason=edit_line(reason))
            return Saved(dataset_id, now.target, row, True, 0, 0)
        _, number = versions.next_name(connection, dataset_id)
        new = versions.copy(connection, dataset_id, now.target, number)
        log.add(connection, "dataset.version_made", now.target, of=log.dataset_name(connection, dataset_id))
        done = versions.apply_edit(connection, new, checked)
        row = versions.add(connection, new, done, annotator=who, reason=edit_line(reason))
        # After the edit: only then is it known which pairs are still the same.
        carried, left_behind = versions.carry_decisions(connection, dataset_id, new)
        return Saved(new, now.target, row, False, carried, left_behind)


def undo(store: Store, dataset_id: int, edit_id: int, *, annotator: str, expected: Plan | None = None) -> Saved:
    """Take a change of the history back, by one more change. Raises StoreError as `save` does, also if what that change
    made has been changed since."""
    with store.read() as connection:
        row = versions.edit_by_id(connection, edit_id)
    reason = f"takes change {edit_id} back"
    return save(store, dataset_id, row.edit.inverse, annotator=annotator, reason=reason, expected=expected)


def history_of(store: Store, dataset_id: int, profile: int) -> list[tuple[EditRow, str]]:
    """Return every change of a profile (its ordinal) and of what it shares with others, the newest first, each with the
    name of its version ('' if that is deleted)."""
    with store.read() as connection:
        names = {row.id: row.name for row in datasets.all_rows(connection)}
        rows = versions.history(connection, dataset_id, profile)
    return [(row, names.get(row.dataset, "")) for row in reversed(rows)]


def saved_change(store: Store, saved: Saved, profile: int) -> tuple[EditRow, ProfileRecord]:
    """Return a change that was just saved, and the profile (its ordinal) in the dataset that holds it now."""
    with store.read() as connection:
        profile_id = datasets.profile_ids(connection, saved.dataset)[profile]
        return versions.edit_by_id(connection, saved.edit), datasets.profile_record(connection, profile_id)


def new_version(store: Store, dataset_id: int) -> tuple[int, str]:
    """Make the next version with nothing changed, as of a frozen dataset; return its id and name."""
    with store.write(Role.CURATOR) as connection:
        versions.lock(connection, dataset_id)
        name, number = versions.next_name(connection, dataset_id)
        new = versions.copy(connection, dataset_id, name, number)
        versions.carry_decisions(connection, dataset_id, new)
        log.add(connection, "dataset.version_made", name, of=log.dataset_name(connection, dataset_id))
        return new, name


def _plan(connection: sa.Connection, dataset_id: int, edit: Edit) -> Plan:
    members = versions.family(connection, dataset_id)
    this = next((item for item in members if item.dataset == dataset_id), None)
    if this is None:
        raise StoreError(f"the dataset {dataset_id} is not here any more. Look at the list of datasets again.")
    # What rests on a dataset decides where a change goes: a number that was shown must stay computable.
    rests = versions.rests_on(connection, dataset_id)
    target = versions.next_name(connection, dataset_id)[0] if rests.anything else this.name
    rows = labellings.all_rows(connection, dataset_id)
    # Calls are counted as for the newest labelling with votes.
    newest = next((row for row in reversed(rows) if not row.imported), None)
    draws, packed = (newest.draws, newest.manifest.get("personas")) if newest else (None, None)
    personas = len(packed) if isinstance(packed, list) else 0
    sizes = datasets.sizes(connection, dataset_id)
    needs = _needs(edit, sizes)
    who = sizes[edit.profile].name if edit.profile in sizes else "all profiles"
    calls = None if draws is None else needs.profiles * needs.contexts * personas * draws
    newer = tuple(item.name for item in members if item.parent == dataset_id)
    imported = sum(row.imported for row in rows)
    return Plan(this.name, target, rests, imported, newer, edit.kind, who, len(sizes), needs, draws, calls)


def _needs(edit: Edit, sizes: dict[int, datasets.Size]) -> Needs:
    """Return the pairs that a change leaves without votes: all of a profile whose statements change, or those of one
    context."""
    before, after = edit.before or {}, edit.after or {}
    if edit.kind == "attribute" and before.get("statement") != after.get("statement"):
        # A labelling prompt holds all statements of a profile, so one that changes leaves all its pairs without votes.
        size = sizes.get(edit.profile if edit.profile is not None else -1)
        if size is None:
            return Needs(0, 0, 0)
        return Needs(1, size.attributes + {"add": 1, "remove": -1}.get(edit.action, 0), size.contexts)
    old, new = (tuple(side.get(name) for name in ("task", "recipient")) for side in (before, after))
    if edit.kind == "context" and edit.action != "remove" and old != new:
        concerned = [size for ordinal, size in sizes.items() if edit.profile in (None, ordinal)]
        return Needs(len(concerned), sum(size.attributes for size in concerned), 1)
    return Needs(0, 0, 0)


# ---- packs of contexts


def add_pack(store: Store, dataset: str, pack: str, *, annotator: str) -> tuple[int, int]:
    """Add the contexts of a pack to all profiles of a dataset that nothing rests on; those that it has stay as they
    are. Return how many are new, and how many it had. Raises StoreError if something rests on it, and SeedError for a
    pack that is unknown or does not fit."""
    who = edit_line(annotator)
    if not who:
        raise StoreError(
            "adding a pack needs the name of who does it, for the history (on the command line: --annotator)."
        )
    contexts = packs.contexts_of([pack], store.workspace)
    with store.write(Role.CURATOR) as connection:
        row = datasets.by_name(connection, dataset)
        # Before the look at what rests on it: a labelling begun in between would miss the new contexts.
        versions.lock(connection, row.id)
        rests = versions.rests_on(connection, row.id)
        if rests.anything:
            dependents = [*rests.counted, *([count(rests.versions, "later version")] if rests.versions else [])]
            dependents += ["a freeze"] if rests.frozen else []
            raise StoreError(
                f"'{dataset}' stays as it is, because {', '.join(dependents)} depend on it. Create or import its "
                f"profiles under another name, add the pack '{pack}' there and label it. Recorded answers are reused."
            )
        present = {(item.context.task, item.context.recipient) for item in datasets.contexts(connection, row.id)}
        fresh = [context for context in contexts if (context.task, context.recipient) not in present]
        for context in fresh:
            # As edits by hand, so that the history shows them and each can be taken back.
            edit = checked_value(edit_of("context", None, None, context))
            done = versions.apply_edit(connection, row.id, edit)
            versions.add(connection, row.id, done, annotator=who, reason=f"pack {pack}")
        log.add(connection, "dataset.pack_added", dataset, pack=pack, contexts=len(fresh))
    return len(fresh), len(contexts) - len(fresh)
