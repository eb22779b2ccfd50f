"""Making a dataset from offline templates, and adding a pack of contexts; curation.authoring writes one by a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cimemories import seeds
from cimemories.curation import editing
from cimemories.curation.offline import generate_profiles
from cimemories.seeds import packs
from cimemories.store import datasets, versions
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, content_hash
from cimemories.text import count


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
    who = editing.edit_line(annotator)
    if not who:
        raise StoreError("adding a pack needs the name of who does it, for the history. Give it with --annotator.")
    contexts = packs.contexts_of([pack], store.workspace)
    with store.write() as connection:
        row = datasets.named(connection, dataset)
        # Before the look at what rests on it: a labelling begun in between would miss the new contexts.
        versions.lock(connection, row.id)
        rests = versions.rests_on(connection, row.id)
        if rests.anything:
            resting = (rests.labellings, rests.runs, rests.decisions, rests.versions)
            names = ("labelling", "run", "decision", "later version")
            dependents = [count(n, name) for n, name in zip(resting, names, strict=True) if n]
            dependents += ["a freeze"] if rests.frozen else []
            raise StoreError(
                f"'{dataset}' stays as it is, because {', '.join(dependents)} depend on it. Create or import its "
                f"profiles under another name, add the pack '{pack}' there and label it. Recorded answers are reused."
            )
        known = {(item.context.task, item.context.recipient) for item in datasets.contexts(connection, row.id)}
        fresh = [context for context in contexts if (context.task, context.recipient) not in known]
        for context in fresh:
            # As edits by hand, so that the history shows them and each can be taken back.
            edit = editing.checked_value(editing.context_edit(None, None, context))
            done = versions.apply_edit(connection, row.id, edit)
            versions.add(connection, row.id, done, annotator=who, reason=f"pack {pack}")
    return Added(dataset, pack, len(fresh), len(contexts) - len(fresh))


def generate_dataset(
    store: Store,
    name: str,
    count: int,
    *,
    seed: int = 0,
    locale: str = "en_US",
    per_domain: int = 5,
    events: int = 3,
    contexts: Sequence[str] = packs.CORE,
) -> DatasetRow:
    """Write `count` profiles as a new dataset, tested in the contexts of these packs.

    Raises StoreError where the name is taken, SeedError for bad seeds or an unknown pack.
    """
    tested_in = packs.contexts_of(contexts, store.workspace)
    # Before the transaction: nothing else could be written while templates are filled.
    profiles = list(
        generate_profiles(count, seed=seed, locale=locale, events=events, per_domain=per_domain, contexts=tested_in)
    )
    source = content_hash(
        ["offline", seeds.seeds_hash(), count, seed, locale, per_domain, events, list(contexts), name]
    )
    made = f"templates, seed {seed}, locale {locale}, {events} events, {per_domain} a domain"
    with store.write() as connection:
        datasets.add(connection, name, profiles, origin="offline", source_name=made, source_hash=source)
        return datasets.named(connection, name)
