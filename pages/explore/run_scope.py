"""Part of the Explore pages: the run in view and the judge that counts, or what to do without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cimemories.answers import metrics as question
from cimemories.charts import bars
from cimemories.compare.leaderboard import bounds_text
from cimemories.flows import catalogue
from cimemories.flows.flows import Flows, shared_flows
from cimemories.flows.scope import Combine, Labels, Scope, Verdicts, judge_title, messages_first, resolve_scope
from cimemories.metrics import sentences
from cimemories.metrics.headline import Headline, JudgeQuotes, headline
from cimemories.metrics.intervals import intervals
from cimemories.model import Channel
from cimemories.store.engine import Store, StoreError, shared_store
from cimemories.store.judgements import JudgeRow
from cimemories.text import count, percent, sentence
from cimemories.ui import answers, charts, page, safe, url

VERDICTS: dict[str, str] = {Verdicts.JUDGE: "the judge's", Verdicts.PEOPLE: "people's, then the judge's"}
AGAINST: dict[str, str] = {Labels.DECISIONS: "With {}", Labels.CONSENSUS: "Votes only"}
COMBINED = {
    Combine.ANY: "any of {} judges",
    Combine.MAJORITY: "more than half of {} judges",
    Combine.ALL: "all {} judges",
}


@dataclass(frozen=True)
class RunScope:
    """The run in view: `top` is the place of the page's head, `columns` stand beside the choice of the run, and `more`
    is behind the button beside it."""

    flows: Flows
    scope: Scope
    top: Any
    columns: Sequence[Any]
    more: Any
    numbers: Headline


def run_scope(
    title: str, nothing: str, why: str, *, button: str = "Judge and labels", beside: Sequence[float] = ()
) -> RunScope | None:
    """Draw the choice of the run, a button with the choice of its judge behind it, and further columns of these widths,
    all in one line. None if there is no run; the page then says so."""
    store = shared_store()
    names = catalogue.run_names(store)
    if not names:
        page.no_runs(title, nothing, why)
        return None
    top = st.container()
    with st.container(key="scope"):
        run_column, more_column, *columns = st.columns([4, 3, *beside], vertical_alignment="bottom")
        with run_column:
            run_id = page.select("Run", list(names)[::-1], lambda i: f"{names[i]} ({i})", f"{title}.run", "run")
    judges = _judge_names(messages_first(catalogue.judges_of(store, str(run_id))))
    counts = url.get("judge") or url.remembered("judge")
    who = judges.get(counts or "", next(iter(judges.values()), ""))
    more = more_button(more_column, f"{button}, {who}" if len(judges) > 1 else button)
    try:
        with page.behind(more):
            judge = _judge(judges, title)
            flows = shared_flows(store)
            scope = resolve_scope(store, str(run_id), judge_id=judge)
            labels = label_choice(flows, scope)
            if scope.audits[0]:
                scope = resolve_scope(store, str(run_id), judge_id=judge, verdicts=_verdicts(store, scope))
        scope = replace(scope, labels=labels)
        with st.spinner("Reading the run", show_time=True):
            numbers = headline(flows, scope)
        with page.behind(more):
            grounded = _grounded(numbers.quotes)
        if grounded:
            scope = replace(scope, grounded=True)
            numbers = headline(flows, scope)
    except StoreError as problem:
        page.error(str(problem))
        return None
    return RunScope(flows, scope, top, columns, more, numbers)


def more_button(column: DeltaGenerator, text: str) -> DeltaGenerator:
    """Draw the button that further choices are behind, and return their place."""
    box: DeltaGenerator = column.popover(
        safe.plain_label(text), icon=":material/tune:", key="scope.more", width="stretch"
    )
    return box


def counting() -> AbstractContextManager[object]:
    """Return a spinner that shows the time; Streamlit draws it only if counting takes more than half a second."""
    return st.spinner("Counting the run", show_time=True)


def caveats(numbers: Headline) -> None:
    """Draw the reasons against taking the numbers at face value: the first, the others open with a click; nothing if
    there are none."""
    task = [numbers.does_task.note] if numbers.does_task is not None and numbers.does_task.note else []
    missing = [numbers.coverage_text] if numbers.coverage_text else []
    if remarks := [*missing, *numbers.how_counted, *task, *numbers.warnings]:
        page.notice(*map(sentence, remarks))


def nothing_measured(title: str, numbers: Headline) -> None:
    """Draw why this run has no number yet, and the way on."""
    run = numbers.scope.run
    labels = {"dataset": run.dataset}
    if numbers.scope.labelling is None:
        text = "The dataset has no labels yet, so nothing can be called inappropriate."
        link = partial(url.page_link, "labels", "Label the dataset", icon=":material/label:", **labels)
    elif not numbers.judged:
        text = "No message of this run is judged yet."
        link = partial(url.page_link, "runs", "See the run", icon=":material/play_circle:", run=run.id)
    else:
        text = (
            "A context counts once one fact about the person is necessary there and another inappropriate. By the "
            f"labels of now none of {count(numbers.discarded, 'judged context')} does. Look at the labels, or decide "
            "some of the ambiguous ones."
        )
        link = partial(url.page_link, "labels", "See the labels", icon=":material/label:", **labels)
    page.empty(title, text, link)


def interval_parts(chosen: RunScope, key: str) -> None:
    """Draw the parts of the headline's intervals, as a table and in words, in a fold."""
    numbers, bounds = chosen.numbers, intervals(chosen.flows, chosen.scope)
    made = {f"Violation@{numbers.n}": bounds.violation[numbers.n], "Completeness": bounds.completeness}
    varying = {name: item for name, item in made.items() if item.part_widths()}
    if not varying:
        return

    def draw() -> None:
        if fig := bars.interval_parts(varying):
            charts.show(fig, key=f"{key}.bars", alt="Shares of the variance of each number; its table is below.")
        answers.twin(question.interval_parts(numbers.n, bounds), f"{key}.table", height="content")
        texts = [
            f"{name} {percent(i.value)} {bounds_text(i)}: {sentences.parts_text(i)}" for name, i in varying.items()
        ]
        unseen = sentences.unseen(bounds.completeness.users)
        safe.inline(" ".join(map(sentence, [*texts, unseen])), muted=True)

    page.fold("What the 95 % intervals are made of", ":material/stacked_bar_chart:", key, draw)


def _judge_names(judges: Sequence[JudgeRow]) -> dict[str, str]:
    """Return the judges of a run, and how several are combined, by the value in the URL."""
    several = [judge for judge in judges if judge.channel == Channel.MESSAGE]
    names = {str(judge.id): judge_title(judge, judges) for judge in judges}
    if len(several) > 1:
        names |= {str(way): text.format(len(several)) for way, text in COMBINED.items()}
    if any(judge.channel == Channel.TOOLS for judge in judges):
        names = {str(Combine.SENT): "messages and tool calls", **names}  # the default
    return names


def _judge(names: Mapping[str, str], title: str) -> str | None:
    """Draw the choice of a judge, or of how several are combined, and return it as the URL has it."""
    if len(names) == 1:
        # Nothing to choose: the address leaves it out, so that Back leads to the previous page.
        (only,) = names
        if url.get("judge") not in (None, only):
            page.notice("The judge in the link is not one of this run, which has a single judge.")
        url.replace(judge=None)
        st.selectbox("Judge", [names[only]], disabled=True, format_func=safe.option)
        return only
    return page.select(
        "Judge",
        list(names),
        names.__getitem__,
        f"{title}.judge",
        "judge",
        help="Whose claims count. With several judges, only messages that all of them have judged.",
    )


def _grounded(quotes: Sequence[JudgeQuotes]) -> bool:
    """Draw the switch that leaves out claims whose quote is not in the text, and return it; False if all quotes are."""
    chosen = (url.get("grounded") or url.remembered("grounded")) == "1"
    if not any(item.ungrounded for item in quotes):
        url.replace(grounded=None)
        return False
    page.bound(
        st.toggle,
        "Grounded claims only",
        key="explore.grounded",
        value=chosen,
        put=lambda on: url.put(grounded=1 if on else None),
        help="Leave out claims whose quote is not in the text that the judge read.",
    )
    counts = "; ".join(
        f"{item.judge}: {count(item.ungrounded)} of {count(item.claims)} full claims ({percent(item.share)})"
        for item in quotes
    )
    safe.inline(f"Quotes not found in the text: {counts}.", muted=True)
    url.replace(grounded=1 if chosen else None)
    return chosen


def label_choice(flows: Flows, scope: Scope) -> Labels:
    """Draw the choice of the labels that flows are compared with, and return it; there is a choice only if people have
    decided pairs."""
    question = ("decided pairs", *scope.dataset_version)
    decided = flows.cached(question, lambda: catalogue.decided_pairs(flows.store, scope.run.dataset))
    if not decided or scope.labelling is None:
        url.replace(labels=None)
        return Labels.DECISIONS
    picked = page.choice(
        "Labels",
        {labels: text.format(count(decided, "human decision")) for labels, text in AGAINST.items()},
        "explore.labels",
        "labels",
        default=Labels.DECISIONS,
        remembered=True,
        help="What counts as inappropriate: what people decided, and else the consensus of the personas' votes; or the "
        "consensus for every pair.",
    )
    return Labels(picked)


def _verdicts(store: Store, scope: Scope) -> Verdicts:
    """Draw the choice of whose verdicts count, and return it; only for a run that people have audited."""
    picked = page.choice(
        "Verdicts that count",
        VERDICTS,
        "explore.verdicts",
        "verdicts",
        default=Verdicts.JUDGE,
        remembered=True,
        help="What a message reveals: by the judge alone, or by people wherever they have audited the judge.",
    )
    if picked == Verdicts.PEOPLE:
        audited = count(catalogue.audited_claims(store, scope.run.id), "audited claim")
        safe.inline(
            f"For {audited} a person's verdict replaces the judge's: in full counts as revealed, anything else does "
            "not. All other claims, and the marks inside messages, are the judge's.",
            muted=True,
        )
    return Verdicts(picked)
