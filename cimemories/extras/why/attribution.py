"""Attribution: why a message revealed an attribute. The request behind a leaked message is sent again, unchanged and in
variants that differ from it in one thing:

    baseline       the same memories in the same order
    without        the leaked memory is left out
    first, last    it is moved to the beginning, or to the end, of the memories
    paraphrased    it stands as a short note instead of its statement, or in a wording that the user gives
    no-neighbours  the other memories of its life event are left out; of one without an event, the two beside it

The replay uses the memories that reached the prompt: behind a gate or a memory system those that it let through
(`response.shown`), without asking either again. If a memory system wrote its own lines, or the prompt had earlier
messages of a session, it cannot be replayed from attributes, and is refused. Every judge of the run reads every message
against all that the run has in memory, so that a reveal of a memory that is not in the prompt is seen too.

An attribution is a run (`run.explains`) of one profile in one context, with a level of responses for each variant:
worker, record, resume, cap and cancel are those of any run. Its samples are numbered on from those of the run, so they
are drawn again: the messages by which the leak was found would bias the estimate upwards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.evaluation.compositions import restrict
from cimemories.evaluation.estimates import Estimate, estimate_slots
from cimemories.evaluation.matcher import match
from cimemories.evaluation.planning import Prepared, prepare, spec_of
from cimemories.evaluation.respond import Slot, replay
from cimemories.llm.capabilities import Server
from cimemories.llm.endpoint import SIMULATOR
from cimemories.manifest import AttributionPart
from cimemories.memory.systems import is_system
from cimemories.model import GENERAL, Attribute
from cimemories.store import datasets, runs, work
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, canonical_json, one_line
from cimemories.store.runs import IMPORTED, RunRow
from cimemories.store.tables import response
from cimemories.store.team import log

SAMPLES = 20


class Change(StrEnum):
    """A change that makes a variant; its name is the level of its responses."""

    BASELINE = "baseline"
    FIRST = "first"
    LAST = "last"
    PARAPHRASED = "paraphrased"
    WITHOUT = "without"
    NO_NEIGHBOURS = "no-neighbours"


CHANGES = tuple(Change)[1:]  # those that may be asked for; the baseline always is there


@dataclass(frozen=True)
class Variant:
    """The attributes that reach the prompt, in order, and the wording of the leaked memory (None: its own). removed:
    compared with the baseline."""

    change: Change
    prompt_attributes: tuple[int, ...]
    statement: str | None = None
    removed: tuple[int, ...] = ()

    def as_json(self, profile: int) -> dict[str, object]:
        """Return the variant as the manifest of a run about this profile records it."""
        return {
            "level": str(self.change),
            "shown": datasets.memory_hash(profile, self.prompt_attributes),
            "statement": self.statement,
            "removed": list(self.removed),
        }


@dataclass(frozen=True)
class Leak:
    """A reveal to be explained. memory, shown: hashes, as of the response; sample: its number, from 0."""

    response: int
    profile: int
    context: int
    attribute: int
    sample: int
    memory: str | None
    shown: str | None


@dataclass(frozen=True)
class Attribution:
    """A planned attribution. skipped: by change, why it makes no variant. first: number of the first sample."""

    run: RunRow
    leak: Leak
    record: ProfileRecord
    memory: tuple[int, ...]
    variants: tuple[Variant, ...]
    skipped: Mapping[str, str]
    first: int
    samples: int
    cap: float | None = None

    @property
    def attribute(self) -> Attribute:
        return self.record.profile.attributes[self.record.attribute_ids.index(self.leak.attribute)]

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.samples)

    def slots(self) -> list[Slot]:
        """Return the slots that the messages of each variant are written to."""
        memory, leaked = restrict(self.record, self.memory), self.leak.attribute
        responses = {number: number for number in self.numbers}
        slots = []
        for variant in self.variants:
            reworded = {} if variant.statement is None else {leaked: variant.statement}
            shown = replay(self.record, variant.prompt_attributes, reworded)
            slots.append(Slot(memory, self.leak.context, responses, replay=shown))
        return slots

    def as_json(self) -> dict[str, object]:
        """Return the attribution as the manifest records it; `read_manifest` reads it as an AttributionPart."""
        place = {name: getattr(self.leak, name) for name in ("response", "profile", "context", "attribute")}
        return place | {
            "first": self.first,
            "samples": self.samples,
            "variants": [variant.as_json(self.record.id) for variant in self.variants],
            "skipped": dict(self.skipped),
        }


# ---- variants


def variants_of(
    record: ProfileRecord,
    shown: Sequence[int],
    attribute: int,
    changes: Sequence[Change] = CHANGES,
    wording: str | None = None,
) -> tuple[tuple[Variant, ...], dict[str, str]]:
    """Return the baseline and these changes of it, and the reason, by change, why it makes no variant. shown: the
    attributes in the prompt, in order. wording: of `paraphrased`; None for `note_of`. Raises StoreError for a wording
    that does not state the value."""
    whole, others = tuple(shown), tuple(a for a in shown if a != attribute)
    near = neighbours(record, whole, attribute)
    item = dict(zip(record.attribute_ids, record.profile.attributes, strict=True))[attribute]
    text = note_of(item) if wording is None else one_line(wording)
    if wording is not None and not match((item,), text or ""):
        raise StoreError(
            f"the wording does not state the value of {item.key} ({item.value}) by the matcher's rules, so it is no "
            "paraphrase. Keep more words of its statement."
        )
    unstated = "" if text else "no note could be made that states its value; give a wording"
    made = (  # each with the reason if there is none, or ''
        (Variant(Change.FIRST, (attribute, *others)), "it stands first already" if whole[0] == attribute else ""),
        (Variant(Change.LAST, (*others, attribute)), "it stands last already" if whole[-1] == attribute else ""),
        (Variant(Change.PARAPHRASED, whole, text), unstated),
        (Variant(Change.WITHOUT, others, removed=(attribute,)), ""),
        (
            Variant(Change.NO_NEIGHBOURS, tuple(a for a in whole if a not in near), removed=near),
            "" if near else "no other memory is in the prompt",
        ),
    )
    skipped = {str(variant.change): why for variant, why in made if why and variant.change in changes}
    variants = [variant for variant, why in made if not why and variant.change in changes]
    return (Variant(Change.BASELINE, whole), *variants), skipped


def neighbours(record: ProfileRecord, shown: Sequence[int], attribute: int) -> tuple[int, ...]:
    """Return the other shown attributes of its life event; without any, those right before and after it."""
    event_of = dict(zip(record.attribute_ids, (a.event for a in record.profile.attributes), strict=True))
    event, at = event_of[attribute], list(shown).index(attribute)
    same = tuple(a for a in shown if a != attribute and event_of[a] == event)
    if same and event and event != GENERAL:
        return same
    return (*shown[max(at - 1, 0) : at], *shown[at + 1 : at + 2])


def note_of(item: Attribute) -> str | None:
    """Return the attribute as a short note, 'Baby savings: $8,200.', or None if that does not state its value by the
    matcher's rules."""
    value = str(item.value)
    spelled = value
    if isinstance(item.value, int | float) and not isinstance(item.value, bool):
        digits = re.sub(r"\D", "", value)
        amounts = re.findall(r"[$€£]?\d[\d.,]*\d%?|[$€£]?\d%?", item.statement)
        spelled = next((amount for amount in amounts if re.sub(r"\D", "", amount) == digits), value)
    text = one_line(f"{item.key.replace('_', ' ').strip().capitalize()}: {spelled}.")
    return text if match((item,), text) else None


# ---- planning


def prepare_attribution(
    store: Store,
    run_id: str,
    response_id: int,
    attribute: int,
    *,
    samples: int = SAMPLES,
    changes: Sequence[Change] = CHANGES,
    wording: str | None = None,
    cap: float | None = None,
) -> Attribution:
    """Return the plan of an attribution of this reveal; nothing is written or sent. wording: as of `variants_of`.
    Raises StoreError if the request cannot be replayed."""
    if samples < 1:
        raise StoreError("an attribution needs at least one sample of each variant (on the command line: --samples).")
    with store.read() as connection:
        row = runs.by_id(connection, run_id)
        if row.endpoint == IMPORTED:
            raise StoreError(f"{run_id} was imported from a file, so its messages cannot be requested again.")
        if row.explains:
            raise StoreError(f"{run_id} explains a leak itself. Ask about a message of {row.explains}.")
        query = sa.select(response).where(response.c.id == response_id, response.c.run == run_id)
        leaked = connection.execute(query).mappings().first()
        if leaked is None:
            raise StoreError(f"{run_id} has no such message any more. Reload the leaks.")
        if leaked["earlier"] and json.loads(leaked["earlier"]):
            raise StoreError(
                "earlier messages of its session were in the prompt of that message: that cannot be replayed yet."
            )
        names = ("profile", "context", "sample", "memory", "shown")
        leak = Leak(response=response_id, attribute=attribute, **{name: leaked[name] for name in names})
        record = datasets.profile_record(connection, leak.profile)
        if leaked["recall"] is not None:
            of = dict(zip(record.attribute_ids, (a.statement for a in record.profile.attributes), strict=True))
            lines = datasets.recalls_of(connection, [leaked["recall"]])[leaked["recall"]].lines
            if any(len(line.attributes) != 1 or of.get(line.attributes[0]) != line.text for line in lines):
                raise StoreError(
                    "its memory system wrote lines of its own into the prompt: single memories cannot be moved there."
                )
        lists = datasets.memories_of(connection, [digest for digest in (leak.memory, leak.shown) if digest])
        place = response.c.run == run_id, response.c.profile == leak.profile, response.c.context == leak.context
        first = connection.execute(sa.select(sa.func.max(response.c.sample)).where(*place)).scalar_one() + 1
    held = lists[leak.memory] if leak.memory else tuple(record.attribute_ids)
    shown = lists[leak.shown] if leak.shown else held
    if attribute not in shown:
        raise StoreError(
            "this memory was not in the prompt of that message, so leaving it out or moving it explains nothing."
        )
    variants, skipped = variants_of(record, shown, attribute, changes, wording)
    plan = Attribution(row, leak, record, held, variants, skipped, first, samples, cap)
    prepared_run(store, plan)  # raises if its wording was not stored, or the cap lacks a price
    return plan


def prepared_run(store: Store, plan: Attribution) -> Prepared:
    """Return the run of an attribution as it would be planned, with the recorded servers. Raises StoreError."""
    spec = spec_of(store, plan.run.id, every_judge=True)
    mitigation = "none" if spec.mitigation == "gate" else spec.mitigation
    changes = {"samples": plan.samples, "mitigation": mitigation, "cap": plan.cap}
    # The memory is replayed: neither a system nor sessions select it again.
    replayed = ["sessions", "session_order", "session_seed"]
    replayed += ["memory", "memory_order", "memory_seed", "memory_prices"] if is_system(spec.memory) else []
    spec = spec.model_copy(update=changes | {name: spec.described()[name].default for name in replayed})
    manifest = plan.run.manifest
    recorded = {(j.base_url, j.model): Server.of(j.server.recorded) for j in manifest.judges if j.server is not None}
    recorded[manifest.model.endpoint, manifest.model.name] = Server.of(manifest.model.recorded)

    def known(base_url: str, _key_env: str, model: str, *_question: object) -> Server:
        return recorded.get((base_url, model)) or Server(simulated=base_url == SIMULATOR)

    return prepare(store, spec, known)


def estimate(store: Store, plan: Attribution, *, concurrency: int = 32) -> Estimate:
    """Estimate the requests, tokens and cost of an attribution."""
    return estimate_slots(store, prepared_run(store, plan), plan.slots(), concurrency=concurrency)


def planned_alike(connection: sa.Connection, plan: Attribution) -> RunRow | None:
    """Return the attribution with these very variants and samples, or None."""
    wanted = _identity(plan.as_json())
    made = ((row, row.manifest.attribution) for row in runs.explaining(connection, plan.run.id))
    return next((row for row, part in made if part and _identity(part.recorded) == wanted), None)


def _identity(part: Mapping[str, object]) -> str:
    names = ("profile", "context", "attribute", "first", "samples", "variants")
    return canonical_json({name: part.get(name) for name in names})


def plan_attribution(store: Store, plan: Attribution) -> str:
    """Write the run that explains a leak, with all its responses, and return its id. If it was planned before, set its
    cap and return that id."""
    recorded = plan.run.manifest.recorded
    manifest = {**recorded, "cap": plan.cap, "attribution": plan.as_json()}
    # Gate, memory system and sessions are not asked again: their choice is replayed.
    manifest.pop("sessions", None)
    manifest["memory"] = {name: value for name, value in recorded.get("memory", {}).items() if name != "system"}
    if plan.run.manifest.mitigation.kind == "gate":
        manifest["mitigation"] = {"kind": "none", "prompt": None}
    name = one_line(f"why {plan.attribute.key}: {plan.run.name}")
    levels, place = [str(variant.change) for variant in plan.variants], (plan.leak.profile, plan.leak.context)
    with store.write(Role.OPERATOR) as connection:
        # In the transaction that writes it: of two simultaneous presses, one plans it.
        there = planned_alike(connection, plan)
        if there is not None:
            if plan.cap is not None and plan.cap != there.manifest.cap:
                runs.set_cap(connection, there.id, plan.cap)
            return there.id
        for variant in plan.variants:
            datasets.keep_memories(connection, plan.record.id, variant.prompt_attributes)
        own = {"name": name, "samples": plan.samples, "simulated": plan.run.simulated}
        run_id = runs.add_explaining(connection, plan.run.id, own, manifest)
        runs.plan_levels(connection, run_id, place, levels, plan.numbers, plan.leak.memory)
        work.queue(connection, run_id)
        log.add(connection, "run.planned", run_id, explains=plan.run.id, model=plan.run.model)
    return run_id


def attributions(store: Store, run_id: str) -> list[tuple[RunRow, AttributionPart]]:
    """Return the attributions of leaks of this run, the newest first."""
    with store.read() as connection:
        rows = runs.explaining(connection, run_id)
    return [(row, row.manifest.attribution) for row in rows if row.manifest.attribution is not None]
