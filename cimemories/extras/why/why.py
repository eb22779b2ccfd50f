"""The explanation of a leak by the variants of an attribution (attribution.py), in numbers and in words.

    p(variant)           reveals / judged messages of the variant; a message that is missing is in neither
    effect of a change   p(variant) - p(baseline)

The interval of a share is Clopper and Pearson's, as elsewhere; that of an effect is Newcombe's for the difference of
two independent shares from Wilson's score limits (R. G. Newcombe 1998, Statistics in Medicine 17, 873-890, method 10;
E. B. Wilson 1927). No reveal in n messages is never "does not leak": the upper limit of its share is said with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from scipy.stats import binomtest

from cimemories.answer import Answer, Column, Table
from cimemories.extras.why.attribution import Attribution, Change, Variant
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.leaks.examples import FULL
from cimemories.leaks.examples import examples as all_examples
from cimemories.leaks.gallery import Facet
from cimemories.leaks.message import Sample, samples
from cimemories.manifest import AttributionPart, VariantPart
from cimemories.metrics.uncertainty import LEVEL, binomial_bounds
from cimemories.model import Attribute, Context
from cimemories.store import datasets
from cimemories.store.engine import StoreError
from cimemories.store.runs import RunRow
from cimemories.store.tables import response
from cimemories.text import count, listed, percent

NAMES = {
    Change.BASELINE: "as it was",
    Change.FIRST: "moved first",
    Change.LAST: "moved last",
    Change.PARAPHRASED: "paraphrased",
    Change.WITHOUT: "without this memory",
    Change.NO_NEIGHBOURS: "without its neighbours",
}


def wilson(reveals: int, judged: int, level: float = LEVEL) -> tuple[float, float]:
    """Return Wilson's score limits of a share (1927); 0 and 1 for no observation."""
    if not judged:
        return 0.0, 1.0
    low, high = binomtest(reveals, judged).proportion_ci(level, method="wilson")
    return float(low), float(high)


def newcombe(reveals: int, judged: int, other: int, other_judged: int) -> tuple[float, float, float]:
    """Return the difference of two independent shares, the first minus the second, with Newcombe's limits (method 10).
    nan if either has no observation."""
    if not judged or not other_judged:
        return math.nan, math.nan, math.nan
    p, q = reveals / judged, other / other_judged
    (p_low, p_high), (q_low, q_high) = wilson(reveals, judged), wilson(other, other_judged)
    return p - q, p - q - math.hypot(p - p_low, q_high - q), p - q + math.hypot(p_high - p, q - q_low)


@dataclass(frozen=True)
class Effect:
    """One variant. planned: messages; judged: those that count; reveals: of these. texts: different messages among
    those judged. serves: of these, how many do their task, by the task check (None: not checked). share: nan without a
    judged message. difference: against the baseline; nan for the baseline itself, and if either has no judged
    message."""

    change: Change
    part: VariantPart
    messages: tuple[Sample, ...]
    planned: int
    judged: int
    reveals: int
    texts: int
    serves: int | None
    share_low: float
    share_high: float
    difference: float = math.nan
    difference_low: float = math.nan
    difference_high: float = math.nan

    @property
    def share(self) -> float:
        return self.reveals / self.judged if self.judged else math.nan

    @property
    def missing(self) -> int:
        return self.planned - self.judged

    @property
    def differs(self) -> bool:
        """Return whether the interval of the difference excludes 0."""
        return self.difference_low > 0 or self.difference_high < 0

    @property
    def name(self) -> str:
        return NAMES[self.change]

    @property
    def counts_text(self) -> str:
        missing = f", {self.missing} missing" if self.missing else ""
        return f"{self.reveals} of {self.judged}{missing}"

    @property
    def at_most(self) -> str:
        return f"at most {percent(self.share_high)} by the exact 95 % interval"


COLUMNS = {
    "name": Column("text", "Variant"),
    "reveals": Column("count", "Revealed"),
    "judged": Column("count", "of"),
    "missing": Column("count", "Missing", "In no count, and not 'not revealed'"),
    "share": Column("percent", "Share", "With its exact 95 % interval"),
    "difference": Column(
        "difference", "Effect", "In percentage points against the request as it was, with 95 % limits"
    ),
    "serves": Column("count", "Does the task"),
}


@dataclass(frozen=True, kw_only=True)
class Why(Answer):
    """The findings of an attribution so far. run: the run that explains, `scope` of the one whose leak is explained.
    short: the sentence for the head of a figure."""

    run: RunRow
    scope: Scope
    part: AttributionPart
    attribute: Attribute
    context: Context
    profile: str
    effects: tuple[Effect, ...]
    short: str

    @property
    def title(self) -> str:
        return f"{self.attribute.key} of {self.profile}, to {self.context.recipient}: {self.context.task}"

    @property
    def about(self) -> dict[str, object]:
        """Return the basis of the numbers, for files."""
        run = {"attribution": self.run.id, "attribute": self.attribute.key, "samples": self.part.samples}
        return self.scope.about | run

    def fields(self) -> dict[str, Any]:
        best, columns = smallest(self.effects), ("planned", "texts", "share_low", "share_high", "difference_low")
        rows = [
            {"variant": str(effect.change), "removed": len(effect.part.removed), "statement": effect.part.statement}
            | {name: getattr(effect, name) for name in (*COLUMNS, *columns, "difference_high")}
            | {"name": effect.name.capitalize()}
            for effect in self.effects
        ]
        return {
            "attribution": self.run.id,
            "run": self.scope,
            "status": self.run.status,
            "model": self.run.model,
            "judge": self.scope.judge_text,
            "profile": self.profile,
            "recipient": self.context.recipient,
            "task": self.context.task,
            "attribute": self.attribute.key,
            "statement": self.attribute.statement,
            "samples": self.part.samples,
            "first_sample": self.part.first + 1,
            "variants": Table(pd.DataFrame(rows), COLUMNS, f"{self.run.id}: {self.title}. {self.attribute.statement}"),
            "skipped": self.part.skipped,
            "smallest": None if best is None else {"variant": best.change, "at_most": best.share_high},
            "sentence": self.sentence,
            "notes": self.notes,
            "simulated": self.simulated,
        }


def smallest(effects: Sequence[Effect]) -> Effect | None:
    """Return the smallest change with which no judged message reveals it: of the order, then of the wording, then of
    the memory, the fewest memories first. None if there is none, or if the baseline, which comes first, reveals nothing
    either."""
    if not effects[0].reveals:
        return None
    silent = [effect for effect in effects[1:] if effect.judged and not effect.reveals]
    return min(silent, key=lambda e: (len(e.part.removed), list(Change).index(e.change)), default=None)


def in_words(effects: Sequence[Effect]) -> tuple[str, str]:
    """Describe the observations as a sentence, and without the limits for the head of a figure."""
    base, best = effects[0], smallest(effects)
    if not base.judged:
        return "No message of the unchanged request is judged yet, so nothing can be compared", "Nothing to compare yet"
    if not base.reveals:
        again = f"in {count(base.judged, 'new message')} of the same request ({base.at_most})"
        short = "The leak did not come back"
        return f"{short} {again}, so no change can be seen to stop it", short
    again = f"Revealed in {base.counts_text} new messages as it was"
    if best is not None:
        none = f"{best.name}, the smallest change without a reveal, in 0 of {best.judged} ({best.at_most})"
        short = f"{best.name.capitalize()}: no reveal in {count(best.judged, 'message')}"
        if best.differs:
            return f"{again}; {none}", short
        return f"{again}; {none}; too few messages to tell that from chance", f"{short}, which may be chance"
    lower = [effect for effect in effects[1:] if effect.differs and effect.difference < 0]
    if lower:
        most = min(lower, key=lambda effect: effect.difference)
        short = "No change stops it"
        return f"{again}; no change stops it, and {most.name} lowers it most, to {most.counts_text}", short
    if any(not effect.judged for effect in effects[1:]):
        short = "Not every change is judged yet"
        return f"{again}; not every change is judged yet, and none of those that are stops it", short
    return f"{again}; no change stops it or can be told to lower it", "No change stops it, or can be told to lower it"


def _notes(part: AttributionPart, effects: Sequence[Effect]) -> tuple[str, ...]:
    """Return what else to know before reading the numbers."""
    base, *changes = effects
    notes = [f"{NAMES[Change(change)]}: left out, {reason}" for change, reason in part.skipped.items()]
    if same := [effect.name for effect in effects if effect.judged > 1 and effect.texts == 1]:
        notes.append(
            f"{listed(same)}: all messages are one and the same text, so they say no more than one would "
            "(is the temperature 0?)"
        )
    worse = [
        effect.name
        for effect in changes
        if effect.serves is not None
        and base.serves is not None
        and newcombe(effect.serves, effect.judged, base.serves, base.judged)[2] < 0
    ]
    if worse:
        notes.append(f"{listed(worse)}: fewer messages do their task than without the change")
    if missing := sum(effect.missing for effect in effects):
        notes.append(f"{count(missing, 'message')} missing or not judged: in no count, and not 'not revealed'")
    return tuple(notes)


def explain(flows: Flows, scope: Scope, row: RunRow) -> Why:
    """Read the attribution `row` of a leak of the scope's run, by the judges of the scope. Raises StoreError if it
    explains another run, or its profile is gone."""
    part = row.manifest.attribution
    if part is None or row.explains != scope.run.id:
        raise StoreError(f"{row.id} explains no leak of {scope.run.id}.")
    with flows.store.read() as connection:
        record = datasets.profile_record(connection, part.profile)
        query = sa.select(response.c.id, response.c.level).where(response.c.run == row.id)
        level_of = {item.id: item.level for item in connection.execute(query)}
        own = samples(connection, replace(scope, run=row), part.profile, part.context)
    by_level: dict[str, list[Sample]] = {}
    for sample in own:
        by_level.setdefault(level_of[sample.response], []).append(sample)
    attribute = dict(zip(record.attribute_ids, record.profile.attributes, strict=True))[part.attribute]
    effects: list[Effect] = []
    for variant in part.variants:
        messages = tuple(by_level.get(variant.level, []))
        judged = [sample for sample in messages if sample.judged]
        reveals = sum(part.attribute in sample.revealed for sample in judged)
        share = np.array(reveals / max(len(judged), 1))
        low, high = (float(bound) for bound in binomial_bounds(share, np.array(float(len(judged)))))
        checked = [sample.task for sample in judged if sample.task is not None]
        serves = sum(task == "yes" for task in checked) if len(checked) == len(judged) and judged else None
        base = effects[0] if effects else None
        difference = (math.nan,) * 3 if base is None else newcombe(reveals, len(judged), base.reveals, base.judged)
        counts = part.samples, len(judged), reveals, len({sample.text for sample in judged}), serves
        effects.append(Effect(Change(variant.level), variant, messages, *counts, low, high, *difference))
    context = record.profile.contexts[record.context_ids.index(part.context)]
    sentence, short = in_words(effects)
    return Why(
        sentence=f"{sentence}.",
        notes=_notes(part, effects),
        simulated=replace(scope, run=row).simulated,
        run=row,
        scope=scope,
        part=part,
        attribute=attribute,
        context=context,
        profile=record.profile.name,
        effects=tuple(effects),
        short=short,
    )


# ---- which leak

MOST_NAMED = 3
MOST_READ = 100_000  # leaks to search; of more, those of the profile


def leaked_flow(
    flows: Flows, scope: Scope, *, profile: str | None, context: str | None, attribute: str | None
) -> tuple[int, int, str]:
    """Return the one leak of the run that these name: the first message that reveals it (id of the response), its
    attribute, and a description of the flow. profile: name or id; context: recipient, task or id; attribute: key.
    Raises StoreError if there is none or more than one, which lists them."""
    every = all_examples(flows, [scope])
    wanted = dict(FULL)
    if every.number > MOST_READ:
        if profile is None:
            raise StoreError(f"{scope.run.id} has {every.number:,} leaks. Name the profile of the one: --profile NAME.")
        with flows.store.read() as connection:
            users = datasets.profile_names(connection, scope.run.dataset)
        wanted[Facet.PROFILE] = [str(i) for i, name in users.items() if profile in (name, str(i))] or ["none"]
    examples = every.page(wanted, 0, None)
    if examples.empty:
        raise StoreError(
            f"{scope.run.id} has no leak{f' of {profile}' if profile else ''}: there is nothing to explain."
        )
    columns_of = {
        "profile": (profile, ["user", "profile"]),
        "context": (context, ["recipient", "task", "context"]),
        "attribute": (attribute, ["key"]),
    }
    for what, (value, columns) in columns_of.items():
        if value is None:
            continue
        left = examples[np.logical_or.reduce([examples[c].astype(str) == value for c in columns])]
        if left.empty:
            names = sorted(set(examples[columns[0]].astype(str)))
            there = f"There are: {', '.join(names[:12])}{' and others' if len(names) > 12 else ''}."
            raise StoreError(f"no leak of {scope.run.id} has the {what} '{value}'. {there}")
        examples = left
    first: list[dict[Any, Any]] = examples.iloc[:MOST_NAMED].to_dict("records")
    if len(examples) > 1:
        named = [f"--profile '{r['user']}' --context '{r['task']}' --attribute {r['key']}" for r in first]
        raise StoreError(f"{len(examples):,} leaks match. Name one; the severest are: {'; '.join(named)}.")
    row = first[0]
    place = int(row["profile"]), int(row["context"]), int(row["attribute"])
    text = f"{row['key']} of {row['user']}, to {row['recipient']}: {row['task']}"
    return first_reveal(flows, scope, *place), place[2], text


def first_reveal(flows: Flows, scope: Scope, profile: int, context: int, attribute: int) -> int:
    """Return the first message of the flow that reveals the attribute in full. Raises StoreError if none does."""
    with flows.store.read() as connection:
        own = samples(connection, scope, profile, context)
    for sample in own:
        if sample.judged and attribute in sample.revealed:
            return sample.response
    raise StoreError("no judged message reveals this attribute in full here: nothing to explain.")


def variant_text(plan: Attribution, variant: Variant) -> str:
    """Describe the change of a planned variant: 'moved first', 'paraphrased: Rent: $1,450.'."""
    if variant.statement is not None:
        return f"{NAMES[variant.change]}: {variant.statement}"
    if variant.change != Change.NO_NEIGHBOURS:
        return NAMES[variant.change]
    attributes = zip(plan.record.attribute_ids, plan.record.profile.attributes, strict=True)
    keys = [item.key for attribute, item in attributes if attribute in variant.removed]
    rest = [f"{len(keys) - 3} more"] if len(keys) > 4 else keys[3:]
    return f"{NAMES[variant.change]}: {listed([*keys[:3], *rest])}"
