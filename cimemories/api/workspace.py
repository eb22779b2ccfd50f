"""A workspace, for a notebook: what it holds, two runs compared, and a new run.

import cimemories

ws = cimemories.open("data/workspace")
run = ws.runs["sim-average on the demo"]
run.metrics().violation[5], run.leaks().head()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from cimemories.answer import html_table
from cimemories.api.run import Run, frame_of
from cimemories.api.session import Choices, Reading, Session
from cimemories.store.engine import Store, StoreError, chosen_workspace, open_store, record_address, sqlite_path
from cimemories.text import count, shortened, visible

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.answer import Listing
    from cimemories.compare.difference import Difference
    from cimemories.compare.leaderboard import Leaderboard
    from cimemories.review.status import Status
    from cimemories.store.datasets import DatasetRow

NAMED = 10  # names that an error lists


def open(location: str | Path | None = None, *, create: bool = False, cache: str | Path | None = None) -> Workspace:
    """Open a workspace: its folder, or the address of a PostgreSQL database (postgresql://user:password@host/name).

    location: default: $CIMEMORIES_WORKSPACE, else data/workspace. As on the command line, $CIMEMORIES_DATABASE_URL goes
    before the folder's own database. create: make one where there is none. cache: folder for tables that are computed
    once, with a PostgreSQL address; default: as for location.

    An app or a worker may use the workspace meanwhile. Reading changes nothing of the record; a table that had to be
    computed is kept beside it, as the app does. A workspace of an older version is brought up to date. Raises
    StoreError where there is none, or it cannot be used.
    """
    given = chosen_workspace() if location is None else location
    url = str(given) if "://" in str(given) else None
    folder = Path(cache) if cache is not None else chosen_workspace() if url else Path(given)
    file = sqlite_path(record_address(folder, url))
    if file is not None and not file.exists() and not create:
        raise StoreError(
            f"there is no workspace in {visible(str(file.parent))}. Name its folder, or make an empty one with "
            "create=True; `cimemories app` makes one with a demo."
        )
    return Workspace(open_store(folder, url))


class Workspace:
    """An open workspace (`cimemories.open`). Close it with `close()` or a `with` block; what was read stays usable."""

    def __init__(self, store: Store) -> None:
        self._session = Session(store)

    @property
    def datasets(self) -> Datasets:
        """Every dataset as it is now, oldest first."""
        return Datasets(self._session)

    @property
    def runs(self) -> Runs:
        """Every run as it is now, oldest first."""
        return Runs(self._session)

    def compare(self, first: Run | str, second: Run | str, **reading: Unpack[Reading]) -> Difference:
        """Return the second run minus the first on the flows that are judged in both, with 95 % intervals: `words`, the
        differences `violation` and `completeness` with `.value`, `.low`, `.high` and `.p`, and `to_frame()`, of "pair",
        "changes", "domains" or "flows". Runs by id, unique name or object; reading: as in `Run`. Raises StoreError for
        runs of two datasets, and for one run twice."""
        from cimemories.compare.difference import difference

        (before, rule), (after, _) = (
            (item if isinstance(item, Run) else self.runs[item])._read(**reading) for item in (first, second)
        )
        return difference(self._session.flows, before, after, rule)

    def flows(self, *runs: Run | str, **reading: Unpack[Choices]) -> pd.DataFrame:
        """Return the flows of several runs, one run below the other, in the columns of `Run.flows`. runs: by id, unique
        name or object; none: every run of which a message is judged, oldest first. Settings join on the run:
        `ws.flows().merge(ws.runs.to_frame()[["id", "thinking"]], left_on="run", right_on="id")`. reading: as in `Run`.
        Raises StoreError where there is no run."""
        from cimemories.compare.leaderboard import judged_runs
        from cimemories.flows.columns import flow_columns, stacked

        store, flows = self._session.store, self._session.flows
        chosen = self._runs(runs or [row.id for row in judged_runs(store)])
        if not chosen:
            raise StoreError(
                "no run of this workspace is judged yet, so there are no flows. Name a run for its labels."
            )
        parts = [flow_columns(flows, run._scope(**reading)) for run in chosen]
        return frame_of(stacked(parts))

    def leaderboard(
        self,
        *runs: Run | str,
        dataset: str | None = None,
        samples: int | None = None,
        rank_small: bool = False,
        **reading: Unpack[Reading],
    ) -> Leaderboard:
        """Rank runs as in the paper's Table 1: `lines`, `ranked`, `outside`, and `to_frame()`, whose kind is run,
        published or baseline.

        runs: of one dataset, by id, unique name or object; none: all judged runs of `dataset`, by default of the one
        with the most. samples: n of Violation@n at most. A run that covers much less than the others stands outside;
        rank_small: rank it too, all runs on what they have in common. reading: as in `Run`. Raises StoreError without
        a judged run, and for runs of several datasets."""
        from cimemories.compare.leaderboard import default_runs, leaderboard

        if runs and dataset is not None:
            raise StoreError("runs are of one dataset already: name the runs, or the dataset.")
        chosen = self._runs(runs or default_runs(self._session.store, dataset))
        read = [run._read(**reading) for run in chosen]
        scopes, rule = [scope for scope, _ in read], read[0][1]
        return leaderboard(self._session.flows, scopes, rule, n=samples, rank_small=rank_small)

    def profiles(self, dataset: str) -> pd.DataFrame:
        """Return the profiles of a dataset, one row a profile in their order: profile (id), user, sex, address, age,
        attributes, contexts (how many), events (a text). Raises StoreError for another name."""
        from cimemories.labels.frames import profile_frame

        return profile_frame(self._session.store, self._dataset(dataset))

    def attributes(self, dataset: str) -> pd.DataFrame:
        """Return the attributes of a dataset, one row an attribute in their order: profile (id), user, attribute (id),
        key, value (as in the file), domain, event, statement, identifier (repeats the biography, never a violation)."""
        from cimemories.labels.frames import attribute_frame

        return attribute_frame(self._session.store, self._dataset(dataset))

    def votes(self, dataset: str, labelling: str | None = None) -> pd.DataFrame:
        """Return the counted votes of a labelling, one row a pair (attribute in a context) and persona.

        profile (id), user, attribute (id), key, domain, event, context (id), recipient, task, sphere; persona (key),
        prior (its weight); votes that the attribute is necessary or inappropriate, abstain, and conflict (in both
        lists); planned (lost votes included). Of an imported labelling: shares of 0 to 1, and none planned. labelling:
        its id; default: the one that numbers rest on. Raises StoreError where there is none."""
        from cimemories.flows.labels import chosen_labelling
        from cimemories.labels.frames import vote_frame

        store, row = self._session.store, self._dataset(dataset)
        chosen = chosen_labelling(store, row, labelling)
        if chosen is None:
            raise StoreError(f"{_quoted(row.name)} has no votes yet. Label it first: cimemories label.")
        return vote_frame(store, row, chosen)

    def labels(self, dataset: str, labelling: str | None = None) -> pd.DataFrame:
        """Return the labels of a dataset, one row a pair (attribute in a context), by profile, attribute and context.

        profile (id), user, attribute (id), key, domain, event, context (id), recipient, task, sphere; label: what
        numbers rest on (necessary, inappropriate, ambiguous, 'too few votes' or unlabelled); consensus: what the votes
        alone say by the rule that holds; decided: a person's decision, not the consensus; retained: the context has a
        necessary and an inappropriate attribute. labelling: as in `votes`; without any, people's decisions alone."""
        from cimemories.flows.labels import chosen_labelling
        from cimemories.labels.frames import effective_labels

        store, row = self._session.store, self._dataset(dataset)
        return effective_labels(store, row, chosen_labelling(store, row, labelling))

    def review(self, dataset: str) -> Status:
        """Return the state of a dataset's review: what is decided and disputed, and by person their decisions and how
        many training and test pairs they got right. Raises StoreError where there is no such dataset."""
        from cimemories.review.status import status

        return status(self._session.store, dataset)

    def _dataset(self, name: str) -> DatasetRow:
        from cimemories.flows import catalogue

        rows = {row.name: row for row in catalogue.all_datasets(self._session.store)}
        if name not in rows:
            raise StoreError(f"there is no dataset {_quoted(name)} in this workspace. {_there(iter(rows))}")
        return rows[name]

    def _runs(self, runs: Iterable[Run | str]) -> list[Run]:
        """Return the runs of these names, ids or objects, each once."""
        chosen = [item if isinstance(item, Run) else self.runs[item] for item in runs]
        return list({run.id: run for run in chosen}.values())

    def run(
        self,
        dataset: str,
        model: str = "",
        base_url: str = "",
        *,
        judge: str | None = None,
        judge_model: str | Sequence[str] | None = None,
        judge_base_url: str | Sequence[str] | None = None,
        judge_api_key_env: str | Sequence[str] | None = None,
        judge_prices: str | Sequence[str] | None = None,
        allow_too_long: bool = False,
        concurrency: int = 32,
        progress: bool = True,
        **settings: Any,
    ) -> Run:
        """Run a model and wait for it: it writes messages, judges read them. base_url='simulator' needs no server;
        assistant='http://...' has a service write the messages (docs/assistants.md).

        settings: samples, profiles, contexts, prompt_level, memory, sessions, thinking, mitigation, temperature,
        max_tokens, seed, check, prices, cap, fresh, name and all others of docs/settings.md, with the defaults there.

        Called again with the same choices it goes on where it stopped, and a run that is finished is returned as it is;
        fresh=True makes a new one, and asks again what other work has recorded. An interrupt (the notebook's stop
        button) keeps what was answered. Warns where a part of the plan is missing at the end. progress: show a bar.
        allow_too_long: send also what does not fit into a server's context.

        Raises StoreError for what is not there or does not fit, or a read-only workspace, EndpointError for a server
        that cannot be used, and WorkError where the work ended early.
        """
        from cimemories.api import running
        from cimemories.cli.runs import JudgeOptions
        from cimemories.evaluation.spec import RunSpec

        if unknown := [name for name in settings if name not in RunSpec.described()]:
            raise StoreError(f"there is no setting '{unknown[0]}'. There are: {', '.join(RunSpec.described())}.")
        judges = JudgeOptions(
            judge=_list(judge),
            judge_model=_list(judge_model),
            judge_base_url=_list(judge_base_url),
            judge_api_key_env=_list(judge_api_key_env),
            judge_prices=_list(judge_prices),
        )
        store = self._session.store
        settings |= {"dataset": dataset, "model": model, "base_url": base_url}
        run_id = running.run(store, settings, judges, concurrency, allow_too_long=allow_too_long, shown=progress)
        return self.runs[run_id]

    def resume(self, run: Run | str, *, concurrency: int = 32, progress: bool = True) -> Run:
        """Go on with a run that is not finished; failed calls are retried. Waits, warns and raises as `run` does."""
        from cimemories.api import running

        run_id = run.id if isinstance(run, Run) else self.runs[run].id
        running.resume(self._session.store, run_id, concurrency, progress)
        return self.runs[run_id]

    def close(self) -> None:
        """Close it; closing twice is no error. Whatever asks the workspace afterwards raises StoreError."""
        self._session.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Workspace {self._session.name}{', closed' if self._session.closed else ''}>"

    def _repr_html_(self) -> str:
        if self._session.closed:
            return html_table(("workspace", ""), [(self._session.name, "closed")])
        return self.datasets._repr_html_() + self.runs._repr_html_()


def _list(value: str | Sequence[str] | None) -> list[str] | None:
    return None if value is None else [value] if isinstance(value, str) else list(value)


@dataclass(frozen=True)
class Dataset:
    """One dataset in a list, as it was when the list was read: its name, how many profiles, attributes, contexts (of
    all profiles), labellings and runs it has, whether its profiles or labels come from a simulator, and when it was
    made (datetime in UTC)."""

    name: str
    profiles: int
    attributes: int
    contexts: int
    labellings: int
    runs: int
    simulated: bool
    created: datetime


class Datasets:
    """The datasets of a workspace, read again each time: by name with `ws.datasets["demo"]`, one after the other, or as
    a frame."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _listing(self) -> Listing:
        from cimemories.answers import lists

        return lists.datasets(lists.contents(self._session.store))

    def _rows(self) -> list[Dataset]:
        rows = [row | {"created": datetime.fromisoformat(row["created"])} for row in self._listing().records()]
        return [Dataset(**{name: row[name] for name in Dataset.__dataclass_fields__}) for row in rows]

    def __getitem__(self, name: str) -> Dataset:
        """Raises StoreError that names what there is."""
        rows = self._rows()
        for row in rows:
            if row.name == name:
                return row
        raise StoreError(f"there is no dataset {_quoted(name)} in this workspace. {_there(row.name for row in rows)}")

    def __contains__(self, name: object) -> bool:
        return any(row.name == name for row in self._rows())

    def __iter__(self) -> Iterator[Dataset]:
        return iter(self._rows())

    def __len__(self) -> int:
        return len(self._rows())

    def to_frame(self) -> pd.DataFrame:
        """Return one row a dataset, oldest first: what `Dataset` has, and id, origin, version (of a later or a frozen
        one) and labels (the state and the model of the newest labelling)."""
        return self._listing().frame

    def _ipython_key_completions_(self) -> list[str]:
        return [row.name for row in self._rows()]

    def __repr__(self) -> str:
        return visible(f"<{count(len(self), 'dataset')}: {', '.join(shortened(row.name, 60) for row in self._rows())}>")

    def _repr_html_(self) -> str:
        return self._listing()._repr_html_()


class Runs:
    """The runs of a workspace, read again each time: by id, the beginning of one or a unique name with
    `ws.runs["run-3f9a1c2e"]`, one after the other, or as a frame."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _names(self) -> dict[str, str]:
        from cimemories.flows import catalogue

        return catalogue.run_names(self._session.store)

    def _ids(self, key: str) -> list[str]:
        from cimemories.flows import catalogue

        return catalogue.run_ids(self._session.store, key)

    def __getitem__(self, key: str) -> Run:
        """Raises StoreError for an unknown run and for a name that several have; it says what there is."""
        from cimemories.flows import catalogue

        ids = self._ids(key)
        if len(ids) > 1:
            raise StoreError(f"{len(ids)} runs are called {_quoted(key)}. Use the id of one: {', '.join(ids)}.")
        if not ids:
            there = _there(f"{run_id} ({shortened(name, 60)})" for run_id, name in self._names().items())
            raise StoreError(f"there is no run {_quoted(key)} in this workspace. {there}")
        store = self._session.store
        row = catalogue.run_of(store, ids[0])
        return Run(self._session, row, next(d.name for d in catalogue.all_datasets(store) if d.id == row.dataset))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and bool(self._ids(key))

    def __iter__(self) -> Iterator[Run]:
        from cimemories.answers import lists

        here = lists.contents(self._session.store)
        return iter([Run(self._session, row, here.dataset_names[row.dataset]) for row in here.runs])

    def __len__(self) -> int:
        return len(self._names())

    def to_frame(self) -> pd.DataFrame:
        """Return one row a run, oldest first, in the columns of `cimemories runs --json`: id, name, dataset, model,
        samples (messages a context), status, error, judged and expected (messages), coverage (their share), responses
        and judgements (by status), simulated, created and finished (datetimes in UTC), sweep (its id), tags (with a
        space between them), note, judges (names), answers (which servers gave them); then its settings, a column each.

        base_url, prompt_level, memory, memory_order, sessions, mitigation and seed are known of every run. The others
        are what was asked for: all settings of docs/settings.md, judge_settings, prompts (their hashes) and reference.
        A list or a mapping is its JSON text. Missing where a setting does not apply to the run, or the run does not
        have it: it was imported, or planned before there was one.
        """
        from cimemories.answers import lists

        return lists.runs_with_settings(self._session.store).frame

    def _ipython_key_completions_(self) -> list[str]:
        return [*self._names(), *self._names().values()]

    def __repr__(self) -> str:
        names = [shortened(name, 60) for name in self._names().values()]
        return visible(f"<{count(len(names), 'run')}: {', '.join(names[-NAMED:])}>")

    def _repr_html_(self) -> str:
        from cimemories.answers import lists

        here = lists.contents(self._session.store)
        return lists.runs(here.runs, here.dataset_names)._repr_html_()


def _quoted(key: object) -> str:
    return f"'{shortened(key, 80)}'"


def _there(names: Iterator[str]) -> str:
    """Return names of what there is, for an error."""
    listed = [shortened(name, 80) for name in names]
    if not listed:
        return "It has none yet."
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return f"It has: {', '.join(listed[-NAMED:])}{more}."
