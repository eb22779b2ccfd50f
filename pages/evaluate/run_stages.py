"""Stages of a run with their bars, rate and time left; calls and tokens by kind; the server's own figures."""

from __future__ import annotations

import time

import pandas as pd
import streamlit as st

from cimemories.analysis.progress import CHECK, DRAFT, GATE, JUDGE, MESSAGES, RESUMABLE, RunProgress, Stage, in_words
from cimemories.evaluation.costs import Cost
from cimemories.evaluation.prices import money
from cimemories.llm.vllm_metrics import ServerFigures, figures_between, read_metrics
from cimemories.llm.worker import SIMULATOR
from cimemories.model import WorkStatus
from cimemories.store.imported_runs import IMPORTED
from cimemories.store.runs import RunRow
from cimemories.ui import safe, tables

SPAN_SECONDS = 20.0  # what the rate of a run is taken over
SERVER_SPAN = 10.0  # and a server's: its own counters jump
SILENT_SECONDS = 30.0  # how long a server that gives no figures is left alone
TITLES = {GATE: "Gate", DRAFT: "Draft", MESSAGES: "Messages", JUDGE: "Judge", CHECK: "Task check"}
KINDS = {
    "gate": "gate",
    "respond": "message",
    "rewrite": "rewrite",
    "judge": "judgement",
    "check": "task check",
}


def draw(row: RunRow, now: RunProgress) -> None:
    """One bar a stage, and under them status, rate and time left in a sentence."""
    messages = next(stage for stage in now.stages if stage.kind == MESSAGES)
    frame = pd.DataFrame(
        [
            {
                "stage": TITLES[stage.kind],
                "by": stage.name or row.model,
                "share": stage.share * 100,
                "done": stage.done,
                "expected": stage.expected,
                "missing": stage.missing,
            }
            for stage in now.stages
        ],
        index=pd.Index(range(len(now.stages))),
    )
    config = st.column_config
    st.dataframe(
        frame,
        key=f"runs.stages.{row.id}",
        hide_index=True,
        height="content",
        placeholder="",
        column_config={
            "stage": config.TextColumn("Stage", width="small"),
            "by": config.TextColumn("By", width="medium"),
            "share": config.ProgressColumn("Progress", format="%.0f %%", min_value=0, max_value=100, width="large"),
            "done": config.NumberColumn("Done", format="localized", width="small"),
            "expected": config.NumberColumn("Of", format="localized", width="small"),
            "missing": config.NumberColumn("Missing", format="localized", width="small"),
        },
        alt="Stages of the run, with what is done, planned and missing",
    )
    words = [f"{messages.done:,} of {messages.expected:,} responses are there"]
    words += [f"{_judged(stage)} by {stage.name}" for stage in now.stages if stage.kind == JUDGE]
    safe.inline(f"{now.status}: {'; '.join(words)}{_pace(row, now)}")


def _judged(stage: Stage) -> str:
    missing = f" ({stage.missing:,} missing)" if stage.missing else ""
    return f"{stage.done:,} judged{missing}"


def _pace(row: RunRow, now: RunProgress) -> str:
    """Rate over the last seconds, and the time that is left at that rate."""
    if now.status == WorkStatus.QUEUED:
        return ". Waiting for the worker to begin."
    if not now.active:
        return "."
    key = f"runs.pace.{row.id}"
    clock = time.monotonic()
    seen: list[tuple[float, int]] = [s for s in st.session_state.get(key, []) if clock - s[0] <= SPAN_SECONDS]
    st.session_state[key] = [*seen, (clock, now.settled)]
    if not seen or clock - seen[0][0] < 2 or now.settled <= seen[0][1]:
        return f". Measuring the pace; {now.worker}."
    rate = (now.settled - seen[0][1]) / (clock - seen[0][0])
    left = max(0, now.to_settle - now.settled) / rate
    return f". {rate:,.1f} steps a second, about {in_words(left)} left; {now.worker}."


def calls_table(now: RunProgress) -> safe.Html:
    """What each kind of call to each model has used and cost, and what that comes to."""
    cost = now.cost
    if not cost.stages:
        why = "a file" if now.imported else "no call"
        return safe.tag("div", f"Nothing is known of calls: {why} stands behind this run so far.", cls="ci-muted")
    several = len({stage.used.model for stage in cost.stages}) > 1
    titles = ("Calls", "failed", "Prompt tokens", "cached", "Completion tokens", "Cost")
    heads = [safe.tag("th", "Kind"), *(safe.tag("th", title, cls="ci-number") for title in titles)]
    rows = [safe.tag("tr", *heads)]
    for stage in sorted(cost.stages, key=lambda stage: [*KINDS, stage.used.kind].index(stage.used.kind)):
        used = stage.used
        cached = tables.percent(used.cached_tokens / used.prompt_tokens) if used.prompt_tokens else ""
        values = (
            tables.count(used.calls),
            tables.count(used.failed),
            tables.count(used.prompt_tokens),
            f"{tables.count(used.cached_tokens)} ({cached})" if used.cached_tokens else "0",
            tables.count(used.completion_tokens),
            "no price" if stage.amount is None else money(stage.amount, cost.currency),
        )
        cells = [safe.tag("td", value, cls="ci-number") for value in values]
        name = KINDS.get(used.kind, used.kind) + (f", {used.model}" if several else "")
        rows.append(safe.tag("tr", safe.tag("td", name), *cells))
    return safe.join(
        [
            safe.tag("table", *rows, cls="ci-grid"),
            safe.tag(
                "div", _money(cost, active=now.active, may_go_on=now.active or now.status in RESUMABLE), cls="ci-muted"
            ),
        ]
    )


def _money(cost: Cost, *, active: bool, may_go_on: bool) -> str:
    """What the calls cost in all, what of that this run paid, and its cap while it can still end the run, or where it
    was exceeded."""
    if not cost.known and cost.unpriced:
        return ""
    paid = f" This run paid {money(cost.paid, cost.currency)}; the rest was in the record."
    total = f"Cost{' so far' if active else ''}: {cost.words()}.{paid if cost.paid < cost.known else ''}"
    if cost.above_cap:
        return f"{total} It {cost.above_cap_words()}."
    if may_go_on and cost.cap is not None:
        return f"{total} It stops once it has paid {money(cost.cap, cost.currency)}."
    return total


def server_figures(row: RunRow) -> None:
    """How the model's server does right now, where it is a vLLM; nothing where it says nothing."""
    if row.endpoint in (SIMULATOR, IMPORTED):
        return
    key = f"runs.server.{row.endpoint}"
    held: dict[str, object] = st.session_state.setdefault(key, {"readings": [], "silent": 0.0})
    if time.monotonic() < float(str(held["silent"])):
        return
    after = read_metrics(row.endpoint)
    if after is None:
        held["silent"] = time.monotonic() + SILENT_SECONDS
        return
    known = held["readings"]
    readings: list[ServerFigures] = (
        [r for r in known if after.at - r.at <= SERVER_SPAN] if isinstance(known, list) else []
    )
    held["readings"] = [*readings, after]
    now = figures_between(readings[0] if readings else None, after)
    parts = [
        f"{now.running:,} requests running, {now.waiting:,} waiting",
        "" if now.tokens_per_second is None else f"{now.tokens_per_second:,.0f} tokens a second",
        f"prefix cache hits {tables.percent(after.hit_rate)} since its start" if after.hit_rate is not None else "",
        f"KV cache {tables.percent(now.kv_use)} full" if now.kv_use is not None else "",
    ]
    safe.inline(f"The server at {row.endpoint}: {', '.join(part for part in parts if part)}.", muted=True)
