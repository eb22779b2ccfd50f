"""Small worlds for tests, written through the store's own functions: profiles, labels by votes, runs with reveals.

Arrays are indexed [profile, attribute, context] in the record's order, so that a test can hand over the very arrays
that it computes its expectation from.

    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    run_id = add_run(store, data.id, samples=5, reveals=[[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.flows.labels import CODES, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.model import (
    DOMAINS,
    Attribute,
    ChatRequest,
    Context,
    JudgementStatus,
    Label,
    Persona,
    Profile,
    ResponseStatus,
    Reveal,
    Span,
    Strength,
    Verdict,
    WorkStatus,
)
from cimemories.store import calls, datasets, judgements, labellings, runs, work
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.engine import Store, now

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import Scope

Missing = Mapping[tuple[int, int, int], ResponseStatus | JudgementStatus]

PERSONAS = (
    Persona("fundamentalist", "The fundamentalist", 0.26, "You tell nothing."),
    Persona("pragmatic", "The pragmatic", 0.64, "You weigh it."),
    Persona("unconcerned", "The unconcerned", 0.10, "You tell all."),
)
VERDICTS = {NECESSARY: Verdict.NECESSARY, INAPPROPRIATE: Verdict.INAPPROPRIATE}


def make_profile(number: int = 0, attributes: int = 6, contexts: int = 4, keys: Sequence[str] = ()) -> Profile:
    """A profile of plain attributes; domains take turns. None is of the biography unless `keys` makes it so
    ('name' in the domain `general`). Contexts are the same for every profile."""
    names = [*keys, *(f"fact_{i}" for i in range(len(keys), attributes))]
    return Profile(
        name=f"Person {number}",
        sex="female" if number % 2 else "male",
        address=f"{number} Elm Street\nSalem, MA 01970",
        age=30 + number,
        attributes=tuple(
            Attribute(
                key=key,
                value=f"value {number}.{i}",
                domain="general" if key == "name" else DOMAINS[i % len(DOMAINS)],
                event="job loss",
                statement=f"Statement {number}.{i} says {key}.",
            )
            for i, key in enumerate(names)
        ),
        contexts=tuple(Context(f"Task {i}", f"Recipient {i}", "housing" if i % 2 else None) for i in range(contexts)),
    )


def add_profiles(store: Store, profiles: Sequence[Profile], name: str = "small world") -> DatasetRow:
    """These very profiles as a dataset."""
    with store.write() as connection:
        datasets.add(connection, name, profiles, origin="test", source_name=None, source_hash=f"hash of {name}")
        return datasets.by_name(connection, name)


def add_dataset(
    store: Store, profiles: int = 2, attributes: int = 6, contexts: int = 4, name: str = "small world"
) -> DatasetRow:
    """A dataset of equally large profiles, each tested in all contexts."""
    return add_profiles(store, [make_profile(i, attributes, contexts) for i in range(profiles)], name)


def records(store: Store, dataset_id: int) -> list[ProfileRecord]:
    with store.read() as connection:
        return datasets.profile_records(connection, dataset_id)


def answer(key: str, *, draw: int = 0, exchange: str = "exchange-1", **changes: Any) -> calls.Answer:
    """An outcome of one draw; `status` other than 'ok' makes it a failure."""
    good = changes.get("status", "ok") == "ok"
    values = {"status": "ok", "content": f"text of {exchange}" if good else None, "seconds": 0.5, "started": now()}
    return calls.Answer(key=key, draw=draw, exchange=exchange, **{**values, **changes})


def add_call(connection: sa.Connection, text: str, kind: str = "respond") -> str:
    """A recorded call of a real model; returns its key."""
    item = ChatRequest("test-model", (("user", text),))
    key = calls.keys_of(item, [0], simulated=False)[0]
    outcome = answer(key, prompt_tokens=10, cached_tokens=4, completion_tokens=2)
    calls.record_all(connection, [calls.Exchange(item, [outcome], kind, "http://x", False)])
    return key


def add_labels(
    store: Store,
    dataset_id: int,
    labels: npt.ArrayLike | Mapping[tuple[int, int], Label],
    *,
    draws: int = 1,
    name: str = "votes",
    simulated: bool = False,
) -> str:
    """A finished labelling whose votes have this consensus; returns its id.

    labels: codes of flows.labels [profile, attribute, context], UNLABELLED for a pair without a vote; or labels
    by (attribute id, context id), all other pairs without a vote. An ambiguous pair: two personas against the third.
    """
    people = records(store, dataset_id)
    wanted = _by_pair(people, labels)
    with store.write() as connection:
        ids = labellings.personas_of(connection, "test", PERSONAS)
        labelling_id = labellings.add(
            connection,
            identity=f"{name} of {dataset_id}",
            dataset_id=dataset_id,
            model="test-voter",
            endpoint="http://x",
            simulated=simulated,
            pack="test",
            draws=draws,
            manifest={"personas": ids},
        )
        key = add_call(connection, f"vote for {labelling_id}", "label")
        contexts = sorted({c for p in people for c in p.context_ids})
        labellings.plan(connection, labelling_id, [p.id for p in people], contexts, ids, draws)
        for person in people:
            settled = []
            for group in labellings.owed(connection, labelling_id, person.id):
                votes = [
                    (a, _vote(wanted[a, group.context], ids.index(group.persona)))
                    for a in person.attribute_ids
                    if wanted.get((a, group.context), UNLABELLED) != UNLABELLED
                ]
                settled += [labellings.Settled(ballot, "ok", None, key, votes) for ballot in group.ballots.values()]
            labellings.settle(connection, settled)
        work.finish(connection, labelling_id, WorkStatus.FINISHED)
        work.bump(connection, labelling_id)
    return labelling_id


def _vote(code: int, persona: int) -> Verdict:
    return VERDICTS.get(code, Verdict.ABSTAIN if persona < 2 else Verdict.NECESSARY)


def _by_pair(people: Sequence[ProfileRecord], values: Any) -> dict[tuple[int, int], int]:
    """Values by (attribute id, context id), from an array [profile, attribute, context] or from a mapping."""
    if isinstance(values, Mapping):
        return {pair: CODES[v] if isinstance(v, Label) else int(v) for pair, v in values.items()}
    array = np.asarray(values)
    return {
        (a, c): int(array[p, i, j])
        for p, person in enumerate(people)
        for i, a in enumerate(person.attribute_ids)
        for j, c in enumerate(person.context_ids)
    }


def add_run(
    store: Store,
    dataset_id: int,
    samples: int,
    reveals: npt.ArrayLike | Mapping[tuple[int, int], int],
    *,
    missing: Missing | None = None,
    judge: str = "test-judge",
    simulated: bool = False,
    status: WorkStatus = WorkStatus.FINISHED,
    profiles: slice = slice(None),
    contexts: slice = slice(None),
) -> str:
    """A run with its judged responses; returns its id. profiles, contexts: those that it is planned for.

    reveals: in how many judged samples an attribute is revealed in full, [profile, attribute, context] or by
    (attribute id, context id); they fall on the first judged samples. missing: what became of single samples, by
    (profile, context, sample) position: a ResponseStatus (no text that counts) or a JudgementStatus (a text without a
    verdict; OWED: no judgement at all).
    """
    people = records(store, dataset_id)
    counts = _by_pair(people, reveals)
    with store.write() as connection:
        run_id = plan_run(
            connection, dataset_id, samples, judge=judge, simulated=simulated, profiles=profiles, contexts=contexts
        )
        judge_id = judgements.of_run(connection, run_id)[0].id
        key = add_call(connection, f"answer for {run_id}")
        calls.link(connection, [(run_id, key, None)])
        outcomes = []
        for p, person in enumerate(people):
            for group in runs.owed(connection, run_id, person.id):
                c = person.context_ids.index(group.context)
                good = [s for s in group.samples if (missing or {}).get((p, c, s)) is None]
                for sample, response_id in group.samples.items():
                    outcome = (missing or {}).get((p, c, sample), JudgementStatus.OK)
                    rank = good.index(sample) if sample in good else samples
                    revealed = [a for a in person.attribute_ids if rank < counts.get((a, group.context), 0)]
                    outcomes.append((response_id, outcome, revealed))
        _settle(connection, outcomes, judge_id, key)
        work.finish(connection, run_id, status)
        work.bump(connection, run_id)
    return run_id


def plan_run(
    connection: sa.Connection,
    dataset_id: int,
    samples: int,
    *,
    judge: str = "test-judge",
    simulated: bool = False,
    profiles: slice = slice(None),
    contexts: slice = slice(None),
) -> str:
    """A run on a dataset, all of it still owed; returns its id. profiles, contexts: those that it is planned for."""
    values = {
        "name": "small run",
        "dataset": dataset_id,
        "dataset_hash": datasets.dataset_hash(connection, dataset_id),
        "model": "test-model",
        "endpoint": "http://x",
        "simulated": simulated,
        "samples": samples,
        "seed": 0,
        "prompt_level": "base",
        "prompt_hash": "0" * 64,
        "composition": "full",
        "parameters": "{}",
    }
    run_id = runs.add(connection, values, manifest={})
    judgements.assign(connection, run_id, [add_judge(connection, judge)])
    context_ids = [row.id for row in datasets.contexts(connection, dataset_id)][contexts]
    runs.plan(connection, run_id, datasets.profile_ids(connection, dataset_id)[profiles], context_ids, samples)
    return run_id


def add_judge(connection: sa.Connection, model: str) -> int:
    return judgements.judge_id(
        connection, kind="llm", model=model, endpoint="http://x", simulated=False, prompt_hash=None, parameters={}
    )


def _settle(
    connection: sa.Connection,
    outcomes: Sequence[tuple[int, ResponseStatus | JudgementStatus, Sequence[int]]],
    judge_id: int,
    key: str,
) -> None:
    """outcomes: of each response what became of it or of its judgement, and the attributes it reveals."""
    # By type, not by value: both kinds of status have an 'ok' and a 'failed'.
    answered = [
        (response_id, outcome if isinstance(outcome, ResponseStatus) else ResponseStatus.OK)
        for response_id, outcome, _ in outcomes
        if outcome is not ResponseStatus.OWED
    ]
    runs.settle_all(connection, [runs.Settled(of, call=key, **_response(status)) for of, status in answered])
    judged = [
        judgements.Settled(
            response_id,
            judge_id,
            status=outcome,
            call=key,
            reveals=_reveals(attributes if outcome is JudgementStatus.OK else ()),
        )
        for response_id, outcome, attributes in outcomes
        if isinstance(outcome, JudgementStatus) and outcome is not JudgementStatus.OWED
    ]
    judgements.settle_all(connection, judged)


def _response(status: ResponseStatus) -> dict[str, Any]:
    good = status is ResponseStatus.OK
    return {
        "status": status,
        "cause": None if good else f"test: {status}",
        "text": "All of it." if good else None,
        "reasoning": None,
        "finish_reason": "stop",
    }


def _reveals(attributes: Sequence[int], strength: Strength = Strength.FULL) -> list[Reveal]:
    return [Reveal(a, "All of it", Span(0, 9), strength) for a in attributes]


def settle_response(
    connection: sa.Connection, response_id: int, key: str, *, status: ResponseStatus = ResponseStatus.OK
) -> bool:
    return runs.settle_all(connection, [runs.Settled(response_id, call=key, **_response(status))])[0]


def settle_judgement(
    connection: sa.Connection,
    response_id: int,
    judge_id: int,
    key: str | None,
    attributes: Sequence[int],
    *,
    status: JudgementStatus = JudgementStatus.OK,
    strength: Strength = Strength.FULL,
) -> None:
    reveals = _reveals(attributes, strength)
    judgements.settle(connection, response_id, judge_id, status=status, call=key, reveals=reveals)


def ask(store: Store, run_id: str) -> tuple[Flows, Scope]:
    """Fresh flows of a record and the scope of a run as it stands now."""
    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import resolve_scope  # imported late: processes that only write need no DuckDB

    return Flows(store), resolve_scope(store, run_id)


def figure_3(flows: Flows, scope: Scope, n: int, rule: str = "exact") -> pd.DataFrame:
    """Figure 3 as a table, one row a cell with any judged flow in a retained context: domain, context (id), task,
    recipient, sphere, violation_pairs, violation, completeness_pairs, completeness (null without a pair)."""
    import pandas as pd  # imported late, as above

    from cimemories.flows.arrays import IdentifierRule, flow_arrays
    from cimemories.metrics.heatmap import grid
    from cimemories.metrics.places import By

    data = flow_arrays(flows, scope)
    figure = grid(flows, scope, By.DOMAIN, By.CONTEXT, n, IdentifierRule(rule))
    p, a, c = np.nonzero(data.retained[:, None, :] & (data.draws > 0))
    row = figure.rows.of(data, p * data.counted.shape[1] + a, c)
    used = np.flatnonzero(np.bincount(c * len(figure.rows) + row))
    used_cells = np.stack([used // max(len(figure.rows), 1), used % max(len(figure.rows), 1)], axis=1)
    at = (used_cells[:, 1], used_cells[:, 0])
    with flows.store.read() as connection:
        contexts = {item.id: item.context for item in datasets.contexts(connection, scope.run.dataset)}
    ids = [data.contexts[i] for i in used_cells[:, 0]]
    return pd.DataFrame(
        {
            "domain": [figure.rows.ids[i] for i in used_cells[:, 1]],
            "context": ids,
            "task": [contexts[i].task for i in ids],
            "recipient": [contexts[i].recipient for i in ids],
            "sphere": [contexts[i].sphere for i in ids],
            "violation_pairs": figure.violation_pairs[at],
            "violation": figure.violation[at],
            "completeness_pairs": figure.completeness_pairs[at],
            "completeness": figure.completeness[at],
        }
    )


def dead_pid() -> int:
    """The number of a process that has just ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid
