"""Step 3 of a new run: what it comes to in calls, tokens, money and time, and the start."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from cimemories.analysis.effective_labels import effective_labels
from cimemories.analysis.progress import in_words
from cimemories.evaluation.estimates import Estimate, StageEstimate, estimate
from cimemories.evaluation.planning import plan
from cimemories.evaluation.prices import money
from cimemories.evaluation.servers import Server, look_up
from cimemories.evaluation.spec import RunSpec
from cimemories.store import datasets
from cimemories.store.engine import Store
from cimemories.ui import page, safe, tables
from cimemories.ui.draft import Draft
from pages.evaluate import run_judges, run_new_model
from pages.evaluate.run_actions import PROBLEMS, sentence, start
from pages.evaluate.run_new_spec import PRICES, spec_of

SUMMED = (
    "draws",
    "recorded",
    "requests",
    "requests_least",
    "prompt_tokens",
    "prompt_tokens_least",
    "cacheable",
    "completion_tokens",
)
ASKED_SECONDS = 30
PER = "For a million tokens"


def draw(store: Store, draft: Draft) -> None:
    """What it is, what it costs, and the button that starts it."""
    with store.read() as connection:
        data = datasets.all_rows(connection)
    left, right = st.columns([2, 3], gap="large")
    try:
        with right:
            _money_fields(draft)
        spec = spec_of(draft, data).checked()
    except PROBLEMS as problem:
        page.error("This cannot be planned yet.", sentence(problem))
        return
    with left:
        safe.show(safe.facts(facts(spec)))
        st.text_input(
            "Name",
            key=draft.key("name", ""),
            placeholder="model on dataset, with what differs from the usual",
            help="What the run is called in tables",
        )
        st.toggle(
            "Draw anew",
            key=draft.key("fresh", default=False),
            help="Takes no answer that other runs have in the record, and pays for all of them again. Resuming the run "
            "does take its own.",
        )
    try:
        with st.spinner("Counting its calls"):
            found = estimate(store, spec, find_labels=effective_labels, look_up=asked_lately)
    except PROBLEMS as problem:
        page.error("This cannot be planned yet.", sentence(problem))
        return
    with right:
        show(found)
    if st.button("Start the run", type="primary", icon=":material/play_arrow:", key="run_new.start"):
        draft.keep()
        draft.put("step", 1)
        start(store, lambda: plan(store, spec, find_labels=effective_labels))
        draft.put("step", 3)  # it was not started


@st.cache_data(ttl=ASKED_SECONDS, max_entries=200, show_spinner=False)
def asked_lately(base_url: str, key_env: str, model: str, samples: int, wants_schema: bool, seed: int | None) -> Server:
    """What a server says of itself, asked once in a while: the page is drawn at every change of a field."""
    return look_up(base_url, key_env, model, samples, wants_schema, seed, retries=0)


def facts(spec: RunSpec) -> list[tuple[str, safe.Html | str]]:
    """What is asked for, in words."""
    memory = spec.memory.composition + (", shuffled" if spec.memory.order == "shuffled" else "")
    limits = [f"{n:,} {what}" for n, what in ((spec.profiles, "profiles"), (spec.contexts, "contexts")) if n]
    sent = dict(spec.sampling) | ({"temperature": spec.temperature} if spec.temperature is not None else {})
    judges = [
        ("matcher" if judge.kind != "llm" else judge.model) + (" on reasoning" if judge.channel != "message" else "")
        for judge in spec.judges
    ]
    own = spec.prompts.get("respond")
    badge = page.SIMULATED if spec.base_url == "simulator" else ""
    return [
        ("Model", safe.join([spec.model, f" at {spec.base_url} " if not badge else " ", badge])),
        ("Dataset", ", ".join([spec.dataset, *limits])),
        ("Prompt", f"{spec.prompt_level}, from {own.source}" if own else spec.prompt_level),
        ("Memory", f"{memory}, each as {spec.memory.template}"),
        ("Thinking", spec.thinking),
        ("Sampling", ", ".join(f"{k} {v}" for k, v in sent.items()) or "the model's defaults"),
        ("Samples", f"{spec.samples}, {tokens_in_words(spec.max_tokens)}"),
        ("Mitigation", str(spec.mitigation)),
        ("Judges", ", ".join(judges)),
        ("Task check", run_judges.CHECKS[spec.check]),
    ]


def tokens_in_words(limit: int | None) -> str:
    return "with the server's own limit on tokens" if limit is None else f"of at most {limit:,} tokens"


def _money_fields(draft: Draft) -> None:
    """Prices of the model and of each judge that is a model, the currency and the cap; nothing for what is free."""
    model = run_new_model.chosen(draft)
    asked = [("model", model.model)]
    judges = run_judges.specs(draft, model.base_url, model.key_env, model.model)
    asked += [(f"judge.{name}", name) for name in dict.fromkeys(j.model for j in judges if j.kind == "llm")]
    key = f"{draft.name}.box.prices"
    box = st.expander("Prices and cap", icon=":material/payments:", key=key, on_change="rerun")
    if not box.open:
        return
    with box:
        safe.inline(
            "Prices of your contract, for a million tokens each; without them the cost is not known. A local server "
            "costs nothing a token: leave them empty.",
            muted=True,
        )
        for field, name in asked:
            title, *columns = st.columns([3, 2, 2, 2], vertical_alignment="bottom")
            with title:
                safe.inline(name if field == "model" else f"{name} (judge)")
            for column, part, label in zip(columns, PRICES, ("Prompt", "Cached prompt", "Completion"), strict=True):
                with column:
                    _price(draft, f"price.{field}.{part}", label)
        one, two, _ = st.columns([2, 2, 5])
        with one:
            st.text_input(
                "Currency", key=draft.key("currency", ""), placeholder="USD", help="One word, or none; it is only shown"
            )
        with two:
            st.number_input(
                "Cap",
                0.0,
                value=None,
                placeholder="none",
                key=draft.key("cap", None),
                help="The run ends once it has paid this much. Requests under way then are paid too, so it may be "
                "exceeded. What is answered stays, and a higher cap goes on. It needs the prices of everything that "
                "costs.",
            )


def _price(draft: Draft, field: str, label: str) -> None:
    st.number_input(
        safe.plain_label(label),
        0.0,
        value=None,
        placeholder="none",
        key=draft.key(field, None),
        help=PER,
        format="%.4g",
    )


def show(found: Estimate) -> None:
    """Calls by stage, then cost and time, then what they rest on."""
    titles = ("Calls", "in the record", "Requests", "Prompt tokens", "Completion tokens", "Cost at most")
    rows = [safe.tag("tr", safe.tag("th", "Stage"), *(safe.tag("th", title, cls="ci-number") for title in titles))]
    several = len({stage.model for stage in found.stages}) > 1
    for stage in _merged(found):
        values = (
            tables.count(stage.draws),
            tables.count(stage.recorded),
            tables.count(stage.requests),
            tables.count(stage.prompt_tokens),
            ("" if stage.completion_known or not stage.requests else "at most ")
            + tables.count(stage.completion_tokens),
            "no price" if stage.cost_most is None else money(stage.cost_most, found.currency),
        )
        name = stage.title + (f", {stage.model}" if several else "")
        cells = [safe.tag("td", value, cls="ci-number") for value in values]
        rows.append(safe.tag("tr", safe.tag("td", name), *cells))
    safe.show(safe.tag("table", *rows, cls="ci-grid"))
    safe.show(
        safe.facts(
            [
                ("Messages", f"{found.responses:,} in {found.places:,} places of a user and a context"),
                ("Cost", found.cost_words),
                ("Time", _time(found)),
            ]
        )
    )
    if found.warning:
        page.notice(sentence(ValueError(found.warning)))
    for text in found.unreachable:
        page.notice(sentence(ValueError(text)))
    if found.cap_note:
        safe.inline(sentence(ValueError(found.cap_note)), muted=True)
    if found.assumptions and found.requests:
        said = [safe.tag("div", f"{text[:1].upper()}{text[1:]}.", cls="ci-point") for text in found.assumptions]
        safe.show(safe.tag("div", "What these numbers rest on:", *said, cls="ci-muted"))
    safe.inline("The run can be paused, cancelled and resumed at any time.", muted=True)


def _merged(found: Estimate) -> list[StageEstimate]:
    """The stages with those of one kind and model, from several cells of a sweep, as one."""
    by_kind: dict[tuple[str, str], StageEstimate] = {}
    for stage in found.stages:
        key = stage.kind, stage.model
        there = by_kind.get(key)
        if there is None:
            by_kind[key] = stage
            continue
        sums = {name: getattr(there, name) + getattr(stage, name) for name in SUMMED}
        known = there.completion_known and stage.completion_known
        by_kind[key] = replace(there, **sums, completion_known=known, prices=there.prices or stage.prices)
    return list(by_kind.values())


def _time(found: Estimate) -> str:
    if not found.requests:
        return "none: all of it is in the record already"
    if found.seconds is None:
        return "not known: calls of some kind are not recorded yet"
    return f"about {in_words(found.seconds)}, with {found.concurrency} requests at once"
