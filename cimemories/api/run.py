"""A run, for notebooks: its numbers and heatmaps, and its flows, leaks and responses as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from cimemories.api.session import Choices, Reading, Session
from cimemories.store.engine import word_of
from cimemories.text import percent, shortened, simulated_text, visible

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.answers.accumulation import Accumulated
    from cimemories.answers.heatmap import Heatmap
    from cimemories.answers.metrics import Metrics
    from cimemories.flows.arrays import IdentifierRule
    from cimemories.flows.columns import Columns
    from cimemories.flows.scope import Scope
    from cimemories.store.runs import RunRow


def frame_of(columns: Columns) -> pd.DataFrame:
    """Return columns as a frame, without copying their arrays."""
    import pandas as pd

    from cimemories.flows.columns import Coded

    def series(column: Any) -> Any:
        if isinstance(column, Coded):
            return pd.Categorical.from_codes(column.codes, pd.Index(column.words, dtype="str"))
        return column

    # copy=False: pandas would gather columns of one type in one block, and so copy each.
    return pd.DataFrame({name: series(column) for name, column in columns.items()}, copy=False)


class Run:
    """One run of a workspace, as it was when it was looked up. Made by `ws.runs[...]` and `ws.run(...)`.

    id, name, model, dataset (name), samples (messages a context), status, created (datetime in UTC), coverage (judged
    over planned messages, None where none is planned), simulated (which parts come from a simulator), tags (a tuple of
    words) and note; set these two to record others, as in `run.tags = [*run.tags, "pilot"]`.

    Most methods take what numbers rest on as keywords (`reading`), as the command line does. labels: 'decisions' (of
    people, then the consensus; default), 'consensus', or the id of a labelling. rule: 'paper', or a rule of the
    dataset. judge: id or name of a judge, or any, majority or all of them; default: the first. grounded: count only
    reveals whose quote is in the message. identifiers (of numbers, not of rows): which attributes never count as
    violations, exact (those that repeat the biography; default), substring or none. They raise StoreError for what is
    not there, and name what is.
    """

    def __init__(self, session: Session, row: RunRow, dataset: str) -> None:
        self._session, self._row = session, row
        self.dataset = dataset

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def name(self) -> str:
        return self._row.name

    @property
    def model(self) -> str:
        return self._row.model

    @property
    def samples(self) -> int:
        return self._row.samples

    @property
    def status(self) -> str:
        return str(self._row.status)

    @property
    def created(self) -> datetime:
        return datetime.fromisoformat(self._row.created)

    @property
    def coverage(self) -> float | None:
        return self._row.coverage

    @property
    def simulated(self) -> tuple[str, ...]:
        return self._row.simulated_parts

    @property
    def tags(self) -> tuple[str, ...]:
        return self._row.tags

    @tags.setter
    def tags(self, words: Iterable[str]) -> None:
        self._describe(tags=[words] if isinstance(words, str) else words)

    @property
    def note(self) -> str:
        return self._row.note

    @note.setter
    def note(self, text: str) -> None:
        self._describe(note=text)

    def _describe(self, **about: Any) -> None:
        from cimemories.flows import catalogue

        catalogue.describe_run(self._session.store, self.id, **about)
        self._row = catalogue.run_of(self._session.store, self.id)

    @property
    def manifest(self) -> dict[str, Any]:
        """Return what shaped the run, as it was recorded: model, server, prompts by hash, memory, judges, versions."""
        return dict(self._row.manifest.recorded)

    def metrics(self, n: int | None = None, **reading: Unpack[Reading]) -> Metrics:
        """Return Violation@n, completeness and the other numbers of the run, with 95 % intervals.

        n: what the balanced score is read at; default: the largest n that messages support. Raises StoreError for an n
        below 1 or above the run's samples.
        """
        from cimemories.answers.metrics import metrics

        return metrics(self._session.flows, *self._read(**reading), n)

    def flows(self, **reading: Unpack[Choices]) -> pd.DataFrame:
        """Return one row an information flow: an attribute of a profile in a context, by profile, attribute and
        context.

        run; profile (id), user (name); attribute (id), key, domain, event; context (id), recipient, task, sphere
        (missing where unknown); label: necessary, inappropriate, ambiguous, 'too few votes' or unlabelled; decided:
        a person's decision, not the consensus; identifier: repeats the biography, never a violation; retained: the
        context has a necessary and an inappropriate attribute, only then it counts; expected: planned messages whose
        memory held the attribute; draws: how many of them are judged; reveals: how many of those reveal it in full;
        judge: whose claims count; simulated: whether messages, labels or judge come from a simulator.

        What counts as a violation: label inappropriate, retained, not identifier, draws > 0. Texts are categories, and
        no number is copied, of millions of rows either; DuckDB and Arrow read the frame as it is.
        """
        from cimemories.flows.columns import flow_columns

        return frame_of(flow_columns(self._session.flows, self._scope(**reading)))

    def recalled(self, by: str = "domain", **reading: Unpack[Reading]) -> pd.DataFrame:
        """Return what a gate or a memory system recalled of the stored attributes, and what was said of those: one row
        a place and label. by: domain, event, attribute, profile, context, recipient or sphere.

        id, place, name; label; flows; draws: judged samples; recalled: of these with the attribute in the prompt;
        exposure: recalled / draws; and the draws by outcome: recalled_and_said, said_not_recalled,
        recalled_not_said, not_recalled. If every prompt had the whole memory, all of it counts as recalled. Raises
        StoreError for another word.
        """
        from cimemories.metrics.places import By
        from cimemories.metrics.recalled.groups import recalled_by

        scope, rule = self._read(**reading)
        side = word_of(By, by, "side of a heatmap")
        return recalled_by(self._session.flows, scope, side, rule).copy()  # what is cached is shared

    def leaks(
        self,
        strength: str | None = "full",
        *,
        where: str | None = None,
        by: Sequence[str] = (),
        excerpts: bool = False,
        **reading: Unpack[Choices],
    ) -> pd.DataFrame:
        """Return the leaks of the run, one row an inappropriate flow that it reveals, the most severe first
        (docs/leaks.md).

        id; run; model; profile (id), user; attribute (id), key, statement, domain, event; context (id), task,
        recipient, sphere ('' where unknown); strength: full, partial or implied; claimed: messages that claim it so;
        reveals: messages that reveal it in full; draws: judged messages whose memory held it; phrase, how a message
        says it: copied, part, reworded, or none where no quote is in a message; quote: grounded where a
        quote is in a message, else ungrounded; certainty of the label: adjudicated, person, unanimous or threshold;
        agreement of the judges in one message: all, some, or alone where the run has one judge; judges: how many of
        several claim it in full in one message; kind: real or simulated.

        strength: full (what counts as a violation), partial or implied; None for all. where: a condition on these
        columns, as in "claimed / draws >= 0.5 and statement ilike '%debt%'"; StoreError says what is wrong with one.
        by: columns to group by, as in ["domain", "phrase"]: then one row a group, the largest first, with these
        columns, number, people, recipients, claimed and draws (both in all), first_id, first_said and first_told (of
        the severest), share (of the leaks) and rate (claimed over draws).

        excerpts: add what the message says, which takes a moment for each row: excerpt, leaked (the part of it that
        gives the attribute away), sample (from 1, <NA> where no judge quotes any), in_message. The texts are a model's:
        they may say anything. Empty where nothing is labelled or nothing leaks.
        """
        from cimemories.answers.leaks import leaks, patterns
        from cimemories.model import Strength

        filters = {} if strength is None else {"strength": [str(word_of(Strength, strength, "strength"))]}
        flows, scope = self._session.flows, self._scope(**reading)
        if by:
            return patterns(flows, scope, filters, by, where=where).patterns.frame
        return leaks(flows, scope, filters, where=where, excerpts=excerpts).leaks.frame

    def responses(self, **reading: Unpack[Choices]) -> pd.DataFrame:
        """Return one row a planned message, missing ones included, by profile, context and sample.

        run; profile (id), user; context (id), recipient, task, sphere (missing where unknown); sample (from 0);
        response (id); status: ok, owed, empty, refused, truncated, unparsed or failed; cause of what is not ok;
        message; judgement: status of the (first) judge's reading, missing while it is owed; judgement_cause; reveals:
        how many attributes it reveals in full, <NA> where not every counted judge has read it.

        The messages are a model's: they may say anything.
        """
        from cimemories.flows.columns import response_columns

        return response_columns(self._session.store, self._scope(**reading))

    def judges(self, **reading: Unpack[Choices]) -> pd.DataFrame:
        """Return how far each two judges of the run agree: one row for all places, then one for the places of each
        label.

        run; first, second (judges); label: all, inappropriate, identifier (inappropriate, but a repetition of the
        biography, so never a violation), necessary, ambiguous or not labelled; simulated; messages both have judged;
        places (an attribute of the memory in a message); both, first_alone, second_alone, neither: places that they
        call revealed in full; agreement (share), kappa (Cohen's), ac1 (Gwet's), missing where undefined; why: why
        kappa is. Empty where no two judges read the same text.
        """
        from cimemories.agreement.judges import judges_agreement, pairs_frame

        scope = self._scope(**reading)
        return pairs_frame(judges_agreement(self._session.flows, self.id, grounded=scope.grounded, labels=scope))

    def claims(self, *, judge: str | None = None, silent: bool = False) -> pd.DataFrame:
        """Return what judges claim that the messages reveal, one row a claim of a judge on an attribute in a message,
        by profile, context, sample, judge and attribute.

        run; profile (id), user; context (id), recipient, task, sphere (missing where unknown); sample (from 0);
        response (id); attribute (id), key, domain, statement; judge, judge_id; channel: what it reads, message or
        reasoning; strength: full (what counts as revealed), partial or implied; quote, with start and end where it
        stands in the text; grounded: it does; held: the message's memory held the attribute, else the claim is no
        reveal.

        judge: id or name of a judge, or any, majority or all for the judges of messages; default: every judge. silent
        adds a row, without a strength, for each attribute that a judge read a message for and does not claim: messages
        x attributes, 72,000 rows a profile and judge on the paper's data at n = 10. A message that a judge has not read
        has no row with it; `responses` says why. Labels join on attribute and context (`flows`, `Workspace.labels`).
        Quotes are a model's text: they may say anything.
        """
        from cimemories.flows.catalogue import judges_of
        from cimemories.flows.columns import claim_frame

        store = self._session.store
        judges = judges_of(store, self.id) if judge is None else self._scope(judge=judge).judges
        return claim_frame(store, self._row, judges, silent=silent)

    def accumulation(self, **reading: Unpack[Reading]) -> Accumulated:
        """Return how leaks accumulate over a user's tasks (docs/metrics.md): `curves`, and the time to the first leak.

        `to_frame()` has one row an n and number of tasks: n, tasks (from 0); share of a user's attributes that is
        revealed where it is inappropriate after so many tasks, mean over all orders of tasks, then over users, with its
        95 % band over users (share_low, share_high); hazard: share of what was private before that this task reveals;
        profiles (behind the mean); growing (of these, how many have that many tasks); independent: the share if each
        task leaked by itself."""
        from cimemories.answers.accumulation import accumulated

        return accumulated(self._session.flows, *self._read(**reading))

    def heatmap(
        self, rows: str = "domain", columns: str = "context", n: int | None = None, **reading: Unpack[Reading]
    ) -> Heatmap:
        """Return violation and completeness by two things, each one of domain, event, attribute, profile, context,
        recipient and sphere (paper, Figure 3). n: samples that violation is read at; default: the largest n that
        messages support. Raises StoreError for two sides that are the same, another word, or an n above the run's
        samples."""
        from cimemories.answers.heatmap import heatmap
        from cimemories.metrics.places import By

        row, column = (word_of(By, side, "side of a heatmap") for side in (rows, columns))
        scope, rule = self._read(**reading)
        return heatmap(self._session.flows, scope, row, column, n, rule)

    def _read(self, identifiers: str = "exact", **choices: Unpack[Choices]) -> tuple[Scope, IdentifierRule]:
        from cimemories.flows.arrays import IdentifierRule

        return self._scope(**choices), word_of(IdentifierRule, identifiers, "identifier rule")

    def _scope(
        self,
        labels: str | None = None,
        rule: str | None = None,
        judge: str | None = None,
        grounded: bool = False,
    ) -> Scope:
        from cimemories.flows.scope import scope_by_words

        store = self._session.store
        return scope_by_words(store, self.id, labels=labels, rule=rule, judge=judge, grounded=grounded)

    def __repr__(self) -> str:
        mark = f", {simulated_text(self.simulated)}" if self.simulated else ""
        return visible(
            f"<Run {self.id}: {shortened(self.name, 80)}, {self.status}, {percent(self.coverage)} judged{mark}>"
        )

    def _repr_html_(self) -> str:
        from cimemories.answers import lists

        return lists.runs([self._row], {self._row.dataset: self.dataset})._repr_html_()
