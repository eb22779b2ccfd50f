"""The scope of a question: a run, the labels it is held against, and who decides what its messages reveal."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from cimemories.flows.labels import AppliedRule, custom_rule, default_labelling, labelling_by_id, paper_rule
from cimemories.model import Channel
from cimemories.store import audits, datasets, judgements, labellings, runs, versions
from cimemories.store.audits import StandingVerdict
from cimemories.store.engine import Store, StoreError, content_hash
from cimemories.store.judgements import JudgeRow
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow

FORM = 3  # of the flow relation: what was cached in an older one is built again


class Verdicts(StrEnum):
    """Sources of verdicts on what a message reveals: the judge, or people where they have given theirs."""

    JUDGE = "judge"
    PEOPLE = "people"


class Labels(StrEnum):
    """Sources of the labels: people's decisions where they stand, else the consensus; or the consensus alone."""

    DECISIONS = "decisions"
    CONSENSUS = "consensus"


class Combine(StrEnum):
    """Ways to combine several judges of a run: an attribute counts as revealed where any of them, more than half of
    them, or all of them claim it in full. one: a single judge. sent: what reaches somebody, by message or tool call:
    one judge's claims on both."""

    ONE = "one"
    SENT = "sent"
    ANY = "any"
    MAJORITY = "majority"
    ALL = "all"

    def need(self, judges: int) -> int:
        """Return how many of so many judges have to claim an attribute."""
        return {Combine.SENT: 1, Combine.ANY: 1, Combine.MAJORITY: judges // 2 + 1, Combine.ALL: judges}.get(self, 1)


@dataclass(frozen=True)
class Scope:
    """The scope of a question: a run, the labelling its labels come from (None: no labels yet), whose claims count, and
    whether people's verdicts count before them.

    judge: the judge, or the first of those that `combine` takes together, which are `panel` (empty for one judge
    alone). people: their standing verdicts on the run, which count before the claims; None: the claims alone count.
    grounded: only claims whose quote stands in the message count. audits: (how many, newest id) of the run's audits, 0
    where there are none. labels: whether people's decisions go before the consensus. rule: the rule that turns votes
    into labels; None: the one that holds for the labelling.
    """

    run: RunRow
    labelling: LabellingRow | None
    judge: JudgeRow
    dataset_name: str
    dataset_revision: int
    people: tuple[StandingVerdict, ...] | None = None
    audits: tuple[int, int, int] = (0, 0, 0)
    combine: Combine = Combine.ONE
    panel: tuple[JudgeRow, ...] = ()
    grounded: bool = False
    labels: Labels = Labels.DECISIONS
    rule: AppliedRule | None = None
    dataset_created: str = ""

    def as_json(self) -> str:
        """Return the id of the run: in an answer a scope is named by it."""
        return self.run.id

    @property
    def about(self) -> dict[str, object]:
        """Facts that numbers of the run rest on, for files."""
        return {
            "run": self.run.id,
            "model": self.run.model,
            "dataset": self.dataset_name,
            "labels": self.labelling.id if self.labelling else "none",
            "labelled_by": self.labels_text,
            "judge": self.judge_text,
        }

    @property
    def dataset_version(self) -> tuple[int, str, int]:
        """Version of the dataset alone, whatever the run: the key of what is cached of it."""
        return self.run.dataset, self.dataset_created, self.dataset_revision

    @property
    def verdicts(self) -> Verdicts:
        return Verdicts.JUDGE if self.people is None else Verdicts.PEOPLE

    @property
    def judges(self) -> tuple[JudgeRow, ...]:
        """Every judge whose claims are counted, in the order of the run."""
        return self.panel if self.combine != Combine.ONE else (self.judge,)

    @property
    def judge_ids(self) -> list[int]:
        return [judge.id for judge in self.judges]

    @property
    def need(self) -> int:
        """Number of judges that have to claim an attribute for it to count as revealed."""
        return self.combine.need(len(self.judges))

    @property
    def judge_text(self) -> str:
        """Return the judges whose claims count: 'gpt-oss', or 'majority of 3 judges (a, b, matcher)'."""
        if self.combine == Combine.ONE:
            return judge_title(self.judge)
        if self.combine == Combine.SENT:
            return f"{judge_title(self.judge)} on messages and tool calls"
        names = ", ".join(judge_title(judge, self.judges) for judge in self.judges)
        return f"{self.combine} of {len(self.judges)} judges ({names})"

    @property
    def channel(self) -> Channel:
        """Return what the judge reads; with messages and tool calls together, the messages."""
        return Channel(self.judge.channel)

    # cached_property writes to the instance's __dict__, which a frozen dataclass allows.
    @cached_property
    def version(self) -> str:
        """Digest that changes whenever anything that the flows rest on has changed."""
        labelled = (self.labelling.id, self.labelling.revision) if self.labelling else None
        # Verdicts enter only where they count, so that an audit leaves the judge's numbers in the cache.
        people: list[object] = [self.audits] if self.verdicts == Verdicts.PEOPLE else []
        claims = [self.judge_ids, str(self.combine), self.grounded]
        if self.labels != Labels.DECISIONS or self.rule is not None:
            people += [str(self.labels), self.rule.digest if self.rule else None]
        # Decisions move the revision of the dataset.
        return content_hash([FORM, self.run.id, self.run.revision, labelled, claims, self.dataset_revision, *people])

    @property
    def labels_text(self) -> str:
        """Return the labels in words: 'decisions before the consensus', 'consensus alone, by the paper's rule'."""
        text = "decisions before the consensus" if self.labels == Labels.DECISIONS else "consensus alone"
        return f"{text}, by {self.rule.name}" if self.rule else text

    @property
    def simulated(self) -> tuple[str, ...]:
        """Parts that come from a simulator: 'responses', 'labels', 'judge' (of a real run). Empty for a wholly real
        result."""
        messages = "responses" in self.run.simulated_parts
        labels = self.labelling is not None and self.labelling.simulated
        judge = not messages and any(judge.simulated for judge in self.judges)
        return ("responses",) * messages + ("labels",) * labels + ("judge",) * judge

    def by_judge(self, judge: JudgeRow) -> Scope:
        """Return the scope by the claims of one judge alone, grounded or not, without people's verdicts."""
        return replace(self, judge=judge, people=None, combine=Combine.ONE, panel=(), grounded=False)


def resolve_scope(
    store: Store,
    run_id: str,
    labelling_id: str | None = None,
    judge_id: int | str | None = None,
    verdicts: Verdicts | str = Verdicts.JUDGE,
    *,
    grounded: bool = False,
    labels: Labels | str = Labels.DECISIONS,
    rule: str | None = None,
) -> Scope:
    """Return the scope of a question. judge_id: a judge's id or name, or any, majority or all (of the run's judges of
    messages); None: the run's first judge of messages, and of an assistant's run that judge on messages and tool calls
    together. rule: 'paper' or the name of a rule of the dataset; None: the one that holds. Raises StoreError for a run,
    labelling, judge or rule that is not there, or a name that several judges have."""
    with store.read() as connection:
        run = runs.by_id(connection, run_id)
        if run.explains:
            raise StoreError(
                f"{run_id} explains a leak of {run.explains} and has no numbers of its own. "
                f"`cimemories why {run.explains}` lists what is explained."
            )
        judges = messages_first(judgements.of_run(connection, run_id))
        name, revision = datasets.name_and_revision(connection, run.dataset)
        made = datasets.created(connection, run.dataset)
        audited = audits.version(connection, run_id)
        people = audits.standing_verdicts(connection, run_id) if Verdicts(verdicts) == Verdicts.PEOPLE else None
    judge, combine, panel = _chosen(run_id, judges, judge_id)
    labelling = default_labelling(store, run.dataset)
    if labelling_id is not None and (labelling is None or labelling.id != labelling_id):
        labelling = labelling_by_id(store, run.dataset, name, labelling_id)
    applied = _rule(store, labelling, rule) if rule else None
    how = Labels(labels), applied
    return Scope(run, labelling, judge, name, revision, people, audited, combine, panel, grounded, *how, made)


SETTLED_SECONDS = 30.0
BEHIND = "Labels have changed in the last half minute. The newest changes are not in these numbers yet."
_settled: dict[tuple[str, int], tuple[int, versions.ContentMark, float]] = {}
_settling = threading.Lock()


def with_recent_decisions(store: Store, scope: Scope) -> Scope:
    """Return the scope with the decisions that tables of many runs have been counted with in this process for at most
    SETTLED_SECONDS. If its profiles or its rule have changed since, or nothing was counted, it is returned as it is.

    Every decision moves the revision of its dataset, and each of 30 runs takes 0.2 s to count. While people decided,
    twenty a second, each user who looked at such a table had it counted again, and waited for minutes.
    """
    key = str(store.engine.url), scope.run.dataset
    with store.read() as connection:
        mark = versions.content_mark(connection, scope.run.dataset)
        # After the mark: the next caller sees what changed in between.
        current = datasets.name_and_revision(connection, scope.run.dataset)[1]
    with _settling:
        revision, known, since = _settled.get(key, (current, mark, 0.0))
        # In a record that was restored, revisions may be lower, and mean something else.
        as_before = known == mark and revision <= current
        if not as_before or time.monotonic() - since >= SETTLED_SECONDS:
            revision = current
            _settled[key] = revision, mark, time.monotonic()
    return replace(scope, dataset_revision=revision)


def is_behind(store: Store, scope: Scope) -> bool:
    """Return whether the dataset has moved on since."""
    with store.read() as connection:
        return datasets.name_and_revision(connection, scope.run.dataset)[1] != scope.dataset_revision


def scope_by_words(
    store: Store,
    run_id: str,
    *,
    labels: str | None = None,
    rule: str | None = None,
    judge: str | None = None,
    grounded: bool = False,
) -> Scope:
    """Return the scope that the command line or the Python API asks for. labels: 'decisions' (None), 'consensus', or
    the id of a labelling."""
    # Anything but the two words is an id of a labelling; resolve_scope says where there is none.
    kind = Labels(labels) if labels in set(Labels) else Labels.DECISIONS
    labelling = None if labels in set(Labels) else labels
    return resolve_scope(store, run_id, labelling, judge, grounded=grounded, labels=kind, rule=rule)


def _rule(store: Store, labelling: LabellingRow | None, name: str) -> AppliedRule:
    if labelling is None:
        raise StoreError(f"there are no votes yet that the rule '{name}' could be applied to. Label the dataset first.")
    with store.read() as connection:
        personas = list(labellings.personas(connection, labelling.id).values())
        if name == labellings.PAPER_RULE:
            return replace(paper_rule(personas), shares=labelling.imported)
        row = labellings.rule_by_name(connection, labelling.dataset, name)
    applied = custom_rule(personas, row.name, row.threshold, row.priors, row.least_votes, row.both_lists)
    return replace(applied, shares=labelling.imported)


def messages_first(judges: Sequence[JudgeRow]) -> list[JudgeRow]:
    """Return judges in their order, those of messages before those of the reasoning."""
    # A stable sort: judges of the same channel keep their order.
    return sorted(judges, key=lambda judge: judge.channel != Channel.MESSAGE)


def judge_title(judge: JudgeRow, among: Sequence[JudgeRow] = ()) -> str:
    """Return the title of a judge: its name, with what tells it from others of that name among these."""
    alike = [item for item in among if item.name == judge.name]
    if len(alike) < 2:
        return judge.name
    hashes = {item.prompt_hash for item in alike}
    # A prompt says more than an id, but tells them apart only where each has one of its own.
    distinct = judge.prompt_hash is not None and len(hashes) == len(alike)
    return (
        f"{judge.name}, prompt {judge.prompt_hash[:8]}"
        if distinct and judge.prompt_hash
        else f"{judge.name}, {judge.id}"
    )


def _chosen(
    run_id: str, judges: Sequence[JudgeRow], choice: int | str | None
) -> tuple[JudgeRow, Combine, tuple[JudgeRow, ...]]:
    if not judges:
        raise StoreError(
            f"{run_id} has no judge, so what its messages reveal is not known. Add one with `cimemories judge`."
        )
    text, first = "" if choice is None else str(choice), judges[0]
    alike = first.kind, first.model, first.prompt_hash
    tools = [it for it in judges if it.channel == Channel.TOOLS and (it.kind, it.model, it.prompt_hash) == alike]
    # These words come before names: a judge that is called 'any' is reached by its id.
    if text in ("", Combine.ONE, Combine.SENT) and tools:
        # What an assistant sends by its tools reaches people as its message does.
        return first, Combine.SENT, (first, tools[0])
    if not text or text == Combine.ONE:
        return first, Combine.ONE, ()
    if text == Combine.SENT:
        raise StoreError(f"no judge of {run_id} reads tool calls beside the messages.")
    if text in set(Combine):
        # Judges of the reasoning read another text, so they cannot agree or disagree with these.
        panel = tuple(judge for judge in judges if judge.channel == Channel.MESSAGE)
        if not panel:
            raise StoreError(f"{run_id} has no judge of messages that could be taken together.")
        return panel[0], Combine(text), panel
    # Ids before names, since a judge may be named like the id of another.
    named = [judge for judge in judges if str(judge.id) == text]
    named = named or [judge for judge in judges if text in (judge.name, judge_title(judge, judges))]
    if len(named) == 1:
        return named[0], Combine.ONE, ()
    judges_text = ", ".join(f"{j.id} ({judge_title(j, judges)})" for j in judges)
    if named:
        raise StoreError(f"{len(named)} judges of {run_id} are called '{text}'. Give the id of one: {judges_text}.")
    raise StoreError(f"{run_id} has no judge {text}. It has: {judges_text}; or any, majority or all of them.")


def simulated_parts(row: RunRow, labels: LabellingRow | None) -> tuple[str, ...]:
    """Return the simulated parts of a run's numbers, by its own mark and the labels that numbers rest on."""
    return row.simulated_parts + ("labels",) * (labels is not None and labels.simulated)


def parts_of(results: Iterable[Collection[str]]) -> tuple[str, ...]:
    """Return what is simulated of any of these results, each part once."""
    return tuple(dict.fromkeys(part for parts in results for part in parts))
