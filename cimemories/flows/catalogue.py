"""Contents of a workspace for pages: one question a function, each in a short transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.flows.labels import default_labelling
from cimemories.model import WorkKind
from cimemories.store import audits, calls, datasets, decisions, judgements, labellings, reviews, runs, work
from cimemories.store.calls import ServerId, Source, Tie
from cimemories.store.datasets import Summary
from cimemories.store.engine import Store
from cimemories.store.judgements import JudgeRow
from cimemories.store.labellings import LabellingRow
from cimemories.store.team import log
from cimemories.store.upkeep import deleting

P = ParamSpec("P")
T = TypeVar("T")


def _asked(
    question: Callable[Concatenate[sa.Connection, P], T], role: Role | None = None
) -> Callable[Concatenate[Store, P], T]:
    """Return a function of the record as one of the store, in a transaction of its own. role: that it takes to write;
    None: it only reads."""

    @wraps(question)
    def ask(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with store.read() if role is None else store.write(role) as connection:
            return question(connection, *args, **kwargs)

    return ask


all_datasets = _asked(datasets.all_rows)
all_runs = _asked(runs.all_rows)
all_sweeps = _asked(runs.all_sweeps)
ballots_of = _asked(labellings.ballots_of)
content_hash = _asked(datasets.dataset_hash)
deletion_of = _asked(deleting.of_dataset)
deletion_of_work = _asked(deleting.of_work)
judges_of = _asked(judgements.of_run)
labelling_failures = _asked(work.failures)
last_review = _asked(decisions.newest)
people = _asked(reviews.people)
profile_names = _asked(datasets.profile_names)
profile_of = _asked(datasets.profile_record)
run_marks = _asked(runs.marks)
run_names = _asked(runs.names)
run_of = _asked(runs.by_id)
search_profiles = _asked(datasets.search_profiles)
verdicts_on = _asked(deleting.verdicts_on)

choose_labelling = _asked(labellings.choose, Role.CURATOR)
save_rule = _asked(labellings.add_rule, Role.CURATOR)
use_rule = _asked(labellings.make_current_rule, Role.CURATOR)
delete_rule = _asked(labellings.delete_rule, Role.CURATOR)
tie_servers = _asked(calls.tie, Role.OPERATOR)
untie_servers = _asked(calls.untie, Role.OPERATOR)


def labellings_of(store: Store, dataset_id: int, *, voted: bool = False) -> dict[str, LabellingRow]:
    """Return the labellings of a dataset by id: the default_labelling first, then the newest first.

    voted: leave out those without a single vote or imported share.
    """
    with store.read() as connection:
        newest_first = labellings.all_rows(connection, dataset_id)[::-1]
    rows = [row for row in newest_first if not voted or row.imported or row.ballots.get(labellings.OK)]
    default = default_labelling(store, dataset_id)
    return {row.id: row for row in sorted(rows, key=lambda row: default is None or row.id != default.id)}


def profile_with(store: Store, dataset_id: int, attribute_id: int) -> int | None:
    """Return the profile of a dataset that has this attribute; None where none has."""
    with store.read() as connection:
        owned = datasets.attribute_ids(connection, dataset_id)
    return next((profile for profile, own in owned.items() if attribute_id in own), None)


def profile_list(store: Store, dataset_id: int) -> tuple[list[Summary], list[str]]:
    """Return the profiles of a dataset in a few words each, and the domains of their attributes."""
    with store.read() as connection:
        return datasets.profile_summaries(connection, dataset_id), list(datasets.domains_of(connection, dataset_id))


def run_ids(store: Store, text: str) -> list[str]:
    """Return the ids of the runs that a text may mean: an id, a name, or the beginning of an id."""
    with store.read() as connection:
        return work.ids_of(connection, text, WorkKind.RUN)


def decided_pairs(store: Store, dataset_id: int) -> int:
    """Count the pairs of a dataset on which a person's decision stands."""
    with store.read() as connection:
        # Not counted in SQL: which decision stands is a rule over a pair's whole history, taken back ones included.
        standing = decisions.standing(decisions.history(connection, dataset_id))
    return sum(decision.label is not None for decision in standing.values())


def audited_claims(store: Store, run_id: str) -> int:
    """Count the claims of a run's judges on which a person's verdict stands."""
    with store.read() as connection:
        return len(decisions.standing(audits.of_run(connection, run_id)))


def judges_of_runs(store: Store, run_ids: Sequence[str]) -> dict[str, list[JudgeRow]]:
    """Return the judges of each of these runs, in the order of the run; one connection for all."""
    with store.read() as connection:
        return {run_id: judgements.of_run(connection, run_id) for run_id in run_ids}


def sources_of(store: Store, run_id: str) -> list[Source]:
    """Return the servers that gave the answers that a run has so far; empty where it has no calls."""
    with store.read() as connection:
        return calls.origins(connection, [run_id])[run_id]


def known_servers(store: Store) -> tuple[list[ServerId], list[Tie]]:
    """Return the servers that work was planned on, and which of them people say are the same."""
    with store.read() as connection:
        return calls.planned_servers(connection), calls.ties(connection)


def pause(store: Store, work_id: str) -> bool:
    """Ask the worker of a run, sweep, labelling or generation to stop once the calls in flight have ended. Returns
    False, and logs nothing, if there is nothing to pause."""
    with store.write(Role.OPERATOR) as connection:
        stopped = work.request_pause(connection, work_id)
        if stopped:
            log.add(connection, f"{work.kind_of(work_id)}.paused", work_id)
    return stopped


def describe_run(store: Store, run_id: str, tags: Iterable[str] | None = None, note: str | None = None) -> None:
    """Replace the tags of a run, or its note, or both; see `runs.describe`."""
    with store.write(Role.OPERATOR) as connection:
        log.add(connection, "run.described", run_id, **runs.describe(connection, run_id, tags, note))


def cancel(store: Store, work_id: str) -> bool:
    """Ask the worker of a run, sweep, labelling or generation to stop; without a live worker it is cancelled at once.
    Returns False, and logs nothing, if it has ended."""
    with store.write(Role.OPERATOR) as connection:
        stopped = work.request_cancel(connection, work_id)
        if stopped:
            log.add(connection, f"{work.kind_of(work_id)}.cancelled", work_id)
    return stopped
