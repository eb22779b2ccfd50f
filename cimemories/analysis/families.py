"""Model families, told from names by seeds/models.yaml, and the warning where labels and answers come from one.

A model tends to judge as its kin do: labels from the family under test make that family look better than it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cimemories.analysis.labels import default_labelling
from cimemories.seeds import SEEDS
from cimemories.seeds.presets import FILE, FamilyEntry, ModelsFile
from cimemories.seeds.reading import SeedError, read, refuse_repeats
from cimemories.store import labellings, runs
from cimemories.store.engine import Store, StoreError


@dataclass(frozen=True)
class Kinship:
    """A run beside the labelling that its numbers rest on. shared: the families that both models are of."""

    run_id: str
    run_name: str
    model: str
    labeller: str
    families: tuple[str, ...]
    labeller_families: tuple[str, ...]
    warning: str | None


@lru_cache(maxsize=4)
def load_families(path: Path | None = None) -> tuple[FamilyEntry, ...]:
    """The families of seeds/models.yaml, in the file's order. Raises SeedError where it does not fit."""
    path = path or SEEDS / FILE
    found = read(path, ModelsFile).families
    refuse_repeats(path, "family", [family.name for family in found])
    return found


def families(model: str, path: Path | None = None) -> tuple[str, ...]:
    """The families that a model's name tells, in the file's order; empty for a name that says nothing. A distilled
    model may be of two: 'DeepSeek-R1-Distill-Qwen-7B'. Raises SeedError where the seeds file does not fit."""
    return tuple(
        family.name
        for family in load_families(path)
        if any(_stands(word, model, family.excepted) for word in family.words)
    )


def family(model: str) -> str | None:
    """The first family that a model's name tells; None where it says nothing."""
    return next(iter(families(model)), None)


def warning(labeller: str, model: str) -> str | None:
    """Why the labels of one model should not be used to test another, in one sentence; None where nothing speaks
    against it. Two models of unknown family warn only where their names are the same."""
    try:
        shared = [name for name in families(labeller) if name in families(model)]
    except SeedError as problem:
        return f"it cannot be told whether labels and answers come from one model family ({problem})"
    if labeller.casefold() == model.casefold():
        return f"the labels come from {labeller}, the very model under test: its own judgement is the standard"
    if shared:
        return (
            f"the labels come from {labeller}, of the same family as the model under test "
            f"({' and '.join(shared)}): its judgement may favour its kin"
        )
    return None


def labeller_warning(store: Store, run_id: str, labelling_id: str | None = None) -> str | None:
    """The warning for a run and a labelling (left out: the one that numbers rest on); None where there is no reason, or
    no labelling. Raises StoreError for a run or labelling that is not there."""
    with store.read() as connection:
        run = runs.named(connection, run_id)
        rows = {row.id: row for row in labellings.all_rows(connection, run.dataset)}
    if labelling_id is not None and labelling_id not in rows:
        raise StoreError(f"there is no labelling '{labelling_id}' of this run's dataset.")
    row = rows[labelling_id] if labelling_id is not None else default_labelling(store, run.dataset)
    return None if row is None else warning(row.model, run.model)


def warnings(store: Store, labelling_id: str) -> list[Kinship]:
    """Every run on the dataset of a labelling beside the model that labelled, those to be warned of first. Raises
    StoreError for an unknown labelling, SeedError where the seeds file does not fit."""
    with store.read() as connection:
        row = next((row for row in labellings.all_rows(connection) if row.id == labelling_id), None)
        every = runs.all_rows(connection)
    if row is None:
        raise StoreError(f"there is no labelling '{labelling_id}'. `cimemories labellings` lists what is there.")
    found = [
        Kinship(
            run_id=run.id,
            run_name=run.name,
            model=run.model,
            labeller=row.model,
            families=families(run.model),
            labeller_families=families(row.model),
            warning=warning(row.model, run.model),
        )
        for run in every
        if run.dataset == row.dataset
    ]
    return sorted(found, key=lambda item: item.warning is None)


def _stands(word: str, name: str, excepted: tuple[str, ...]) -> bool:
    """Whether a word stands in a name other than as a part of an excepted one."""
    rest = name
    for other in excepted:
        rest = _pattern(other).sub(" ", rest)
    return _pattern(word).search(rest) is not None


@lru_cache(maxsize=512)
def _pattern(word: str) -> re.Pattern[str]:
    """A letter before or after makes it another word; so does a digit beside a digit. A digit after letters is a
    version: qwen3, gemma2."""
    before = "(?<![a-z0-9])" if word[0].isdigit() else "(?<![a-z])"
    after = "(?![a-z0-9])" if word[-1].isdigit() else "(?![a-z])"
    return re.compile(f"{before}{re.escape(word)}{after}", re.IGNORECASE)
