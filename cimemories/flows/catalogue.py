"""What a workspace holds, as a page asks for it: one question a function, each in a short transaction of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.flows.labels import default_labelling
from cimemories.model import WorkKind
from cimemories.store import audits, calls, datasets, decisions, judgements, labellings, reviews, runs, work
from cimemories.store.calls import ServerId, Source, Tie
from cimemories.store.datasets import DatasetRow, Hit, ProfileRecord, Summary
from cimemories.store.decisions import Newest
from cimemories.store.engine import Store
from cimemories.store.judgements import JudgeRow
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow, SweepRow
from cimemories.store.tables import profile
from cimemories.store.team import log
from cimemories.store.upkeep import deleting
from cimemories.store.upkeep.deleting import Deletion


def last_review(store: Store, annotator: str | None = None) -> Newest | None:
    """The pair that this annotator, or anybody, decided last; None where no decision is recorded."""
    with store.read() as connection:
        return decisions.newest(connection, annotator)


def people(store: Store) -> list[str]:
    """Everybody whose name the workspace holds, who worked last first."""
    with store.read() as connection:
        return reviews.people(connection)


def all_datasets(store: Store) -> list[DatasetRow]:
    """Every dataset, in the order of the record."""
    with store.read() as connection:
        return datasets.all_rows(connection)


def content_hash(store: Store, dataset_id: int) -> str:
    """The hash of a dataset's profiles and contexts."""
    with store.read() as connection:
        return datasets.dataset_hash(connection, dataset_id)


def labellings_of(store: Store, dataset_id: int, *, voted: bool = False) -> dict[str, LabellingRow]:
    """The labellings of a dataset by id: the one that numbers rest on first (default_labelling), then the newest first.

    voted: leave out those without a single vote or imported share.
    """
    with store.read() as connection:
        newest_first = labellings.all_rows(connection, dataset_id)[::-1]
    rows = [row for row in newest_first if not voted or row.imported or row.ballots.get(labellings.OK)]
    default = default_labelling(store, dataset_id)
    return {row.id: row for row in sorted(rows, key=lambda row: default is None or row.id != default.id)}


def choose_labelling(store: Store, labelling_id: str) -> None:
    """Let all numbers of its dataset rest on a labelling. Raises StoreError as labellings.choose does."""
    with store.write(Role.CURATOR) as connection:
        labellings.choose(connection, labelling_id)


def labelling_failures(store: Store, labelling_id: str) -> list[tuple[str, str, int]]:
    """Why votes are missing: (status, cause, count), the most frequent first."""
    with store.read() as connection:
        return labellings.failures(connection, labelling_id)


def ballots_of(store: Store, labelling_id: str, profile_id: int) -> tuple[int, int]:
    """How many ballots of one profile are usable, and how many were planned."""
    with store.read() as connection:
        return labellings.ballots_of(connection, labelling_id, profile_id)


def profile_with(store: Store, dataset_id: int, attribute_id: int) -> int | None:
    """The profile of a dataset that has this attribute; None where none has."""
    with store.read() as connection:
        owned = datasets.attribute_ids(connection, dataset_id)
    return next((profile for profile, own in owned.items() if attribute_id in own), None)


def save_rule(
    store: Store,
    dataset_id: int,
    name: str,
    *,
    threshold: float,
    priors: Mapping[str, float],
    annotator: str,
    use: bool,
    least_votes: int | None = None,
    both_lists: str = labellings.BOTH_LISTS[0],
) -> None:
    """Save a rule under a new name, and make it current where `use` says so. Raises StoreError as labellings.add_rule
    does."""
    with store.write(Role.CURATOR) as connection:
        labellings.add_rule(
            connection,
            dataset_id,
            name,
            threshold=threshold,
            priors=priors,
            annotator=annotator,
            use=use,
            least_votes=least_votes,
            both_lists=both_lists,
        )


def use_rule(store: Store, dataset_id: int, name: str) -> None:
    """Make a rule current; 'paper' is the paper's. Raises StoreError for an unknown one, or a frozen dataset."""
    with store.write(Role.CURATOR) as connection:
        labellings.make_current_rule(connection, dataset_id, name)


def delete_rule(store: Store, dataset_id: int, name: str) -> None:
    """Delete a rule; where it was current, the paper's applies again. Raises StoreError as `use_rule` does."""
    with store.write(Role.CURATOR) as connection:
        labellings.delete_rule(connection, dataset_id, name)


def profile_of(store: Store, profile_id: int) -> ProfileRecord:
    """One profile with its attributes and contexts. Raises StoreError where there is none of that id."""
    with store.read() as connection:
        return datasets.profile_record(connection, profile_id)


def profile_names(store: Store, dataset_id: int) -> dict[int, str]:
    """The profiles of a dataset by id, in their order: names only, however many attributes they have."""
    with store.read() as connection:
        rows = connection.execute(
            sa.select(profile.c.id, profile.c.name).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)
        )
        return {row.id: row.name for row in rows}


def profile_list(store: Store, dataset_id: int) -> tuple[list[Summary], list[str]]:
    """The profiles of a dataset in a few words each, and the domains of their attributes."""
    with store.read() as connection:
        return datasets.profile_summaries(connection, dataset_id), list(datasets.domains_of(connection, dataset_id))


def search_profiles(
    store: Store, dataset_id: int, text: str, *, domains: Sequence[str], profiles: Sequence[int] | None, limit: int
) -> tuple[list[Hit], int]:
    """Attributes whose statement, key or profile's name holds the text, at most `limit`, and how many there are.

    domains: empty means all; profiles: ids to search in, None means all.
    """
    with store.read() as connection:
        return datasets.search_profiles(connection, dataset_id, text, domains=domains, profiles=profiles, limit=limit)


def all_runs(store: Store) -> list[RunRow]:
    """Every run, oldest first."""
    with store.read() as connection:
        return runs.all_rows(connection)


def all_sweeps(store: Store) -> list[SweepRow]:
    """Every sweep, oldest first."""
    with store.read() as connection:
        return runs.all_sweeps(connection)


def run_marks(store: Store) -> frozenset[tuple[str, ...]]:
    """What differs once a run or sweep has come, begun, ended or gone, or has a new name; quick to read."""
    with store.read() as connection:
        return runs.marks(connection)


def run_names(store: Store, dataset_id: int | None = None) -> dict[str, str]:
    """Names of runs by id, oldest first; of one dataset where given."""
    with store.read() as connection:
        return runs.names(connection, dataset_id)


def run_ids(store: Store, text: str) -> list[str]:
    """Return the ids of the runs that a text may mean: an id, a name, or the beginning of an id."""
    with store.read() as connection:
        return work.ids_of(connection, text, WorkKind.RUN)


def decided_pairs(store: Store, dataset_id: int) -> int:
    """On how many pairs of a dataset a person's decision stands."""
    with store.read() as connection:
        # Not counted in SQL: which decision stands is a rule over a pair's whole history, taken back ones included.
        standing = decisions.standing(decisions.history(connection, dataset_id))
    return sum(decision.label is not None for decision in standing.values())


def audited_claims(store: Store, run_id: str) -> int:
    """How many claims of a run's judges a person's verdict stands on."""
    with store.read() as connection:
        return len(audits.standing(audits.of_run(connection, run_id)))


def run_of(store: Store, run_id: str) -> RunRow:
    """A run as it is now. Raises StoreError where it is gone."""
    with store.read() as connection:
        return runs.named(connection, run_id)


def judges_of(store: Store, run_id: str) -> list[JudgeRow]:
    """The judges that say what a run's messages reveal, the one that numbers rest on first."""
    with store.read() as connection:
        return judgements.of_run(connection, run_id)


def judges_of_runs(store: Store, run_ids: Sequence[str]) -> dict[str, list[JudgeRow]]:
    """The judges of each of these runs, in the order of the run; one connection for all."""
    with store.read() as connection:
        return {run_id: judgements.of_run(connection, run_id) for run_id in run_ids}


def sources_of(store: Store, run_id: str) -> list[Source]:
    """Which servers gave the answers that a run has so far; empty where it has no calls."""
    with store.read() as connection:
        return calls.origins(connection, [run_id])[run_id]


def verdicts_on(store: Store, run_id: str) -> int:
    """How many verdicts people have given on a run's judgements, taken back ones included."""
    with store.read() as connection:
        return deleting.verdicts_on(connection, [run_id])


def known_servers(store: Store) -> tuple[list[ServerId], list[Tie]]:
    """The servers that work was planned on, and which of them people say are the same."""
    with store.read() as connection:
        return calls.known(connection), calls.ties(connection)


def tie_servers(store: Store, one: str, other: str, author: str) -> None:
    """Say that two addresses are the same server. Raises StoreError as calls.tie does."""
    with store.write(Role.OPERATOR) as connection:
        calls.tie(connection, one, other, author)


def untie_servers(store: Store, tie: Tie) -> None:
    """Take that back."""
    with store.write(Role.OPERATOR) as connection:
        calls.untie(connection, tie.first, tie.second)


def deletion_of(store: Store, dataset_name: str) -> Deletion:
    """What deleting a dataset takes along. Raises StoreError where there is none of that name."""
    with store.read() as connection:
        return deleting.of_dataset(connection, dataset_name)


def deletion_of_work(store: Store, work_id: str) -> Deletion:
    """What deleting a run, sweep, labelling or generation takes along. Raises StoreError where it must stay."""
    with store.read() as connection:
        return deleting.of_work(connection, work_id)


def pause(store: Store, work_id: str) -> bool:
    """Ask the worker of a run, sweep, labelling or generation to stop once the calls in flight have ended. False, and
    nothing in the log, where there is nothing to pause."""
    with store.write(Role.OPERATOR) as connection:
        stopped = work.request_pause(connection, work_id)
        if stopped:
            log.add(connection, f"{work.kind_of(work_id)}.paused", work_id)
    return stopped


def cancel(store: Store, work_id: str) -> bool:
    """Ask the worker of a run, sweep, labelling or generation to stop; where none lives it is cancelled at once. False,
    and nothing in the log, where it has ended."""
    with store.write(Role.OPERATOR) as connection:
        stopped = work.request_cancel(connection, work_id)
        if stopped:
            log.add(connection, f"{work.kind_of(work_id)}.cancelled", work_id)
    return stopped
