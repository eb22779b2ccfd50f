"""Adding a pack's contexts to a dataset that is there already, for all its profiles and with history."""

from __future__ import annotations

from dataclasses import dataclass

from cimemories.curation import editing, editing_fields
from cimemories.seeds import packs
from cimemories.store import changes, datasets, edits, versions
from cimemories.store.engine import Store, StoreError


@dataclass(frozen=True)
class Added:
    """What adding a pack came to: contexts that are new, and contexts that the dataset had already."""

    dataset: str
    pack: str
    new: int
    there: int


def add_pack(store: Store, dataset: str, pack: str, *, annotator: str) -> Added:
    """Add the contexts of a pack to all profiles of a dataset; those that it has already stay as they are.

    All of it or nothing, and only while nothing rests on the dataset: labels, runs and decisions must go on meaning
    what they meant. Raises StoreError where something does, and SeedError for a pack that is unknown or does not fit.
    """
    who = editing_fields.line(annotator)
    if not who:
        raise StoreError("adding a pack needs the name of who does it, for the history. Give it with --annotator.")
    contexts = packs.contexts_of([pack], store.workspace)
    with store.write() as connection:
        row = datasets.named(connection, dataset)
        versions.lock(connection, row.id)
        rests = versions.rests_on(connection, row.id)
        if rests.anything:
            resting = (rests.labellings, rests.runs, rests.decisions, rests.versions)
            names = ("labelling", "run", "decision", "later version")
            found = [f"{n} {name}{'s' if n > 1 else ''}" for n, name in zip(resting, names, strict=True) if n]
            found += ["a freeze"] if rests.frozen else []
            raise StoreError(
                f"'{dataset}' stays as it is, because it carries {', '.join(found)}. Make or import its profiles under "
                f"another name, add the pack '{pack}' there, then label: what was asked before is asked no more."
            )
        known = {(item.context.task, item.context.recipient) for item in datasets.contexts(connection, row.id)}
        fresh = [context for context in contexts if (context.task, context.recipient) not in known]
        for context in fresh:
            wanted = editing_fields.checked(editing.context_edit(None, None, context))
            done = changes.apply(connection, row.id, wanted)
            edits.add(connection, row.id, done, annotator=who, reason=f"pack {pack}")
    return Added(dataset, pack, len(fresh), len(contexts) - len(fresh))
