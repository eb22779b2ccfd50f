"""The progress of a run as tables and sentences: its stages, the outcomes of its messages, the cost of its calls."""

from __future__ import annotations

from dataclasses import dataclass

from cimemories.answer import Answer, Column, Listing, Table, attributes
from cimemories.evaluation.costs import Cost
from cimemories.evaluation.prices import money
from cimemories.flows.progress import CHECK, DRAFT, GATE, JUDGE, MESSAGES, RESUMABLE, RunProgress
from cimemories.model import ResponseStatus
from cimemories.text import count

STAGES = {GATE: "Gate", DRAFT: "Draft", MESSAGES: "Messages", JUDGE: "Judge", CHECK: "Task check"}
# By the kinds of calls, in the order in which they are shown.
CALLS = {"gate": "gate", "respond": "message", "rewrite": "rewrite", "judge": "judgement", "check": "task check"}
STATUSES = {
    ResponseStatus.OK: "written, to be judged",
    ResponseStatus.REFUSED: "refused by the server",
    ResponseStatus.TRUNCATED: "cut off at the token limit",
    ResponseStatus.EMPTY: "no text came back",
    ResponseStatus.UNPARSED: "the gate's answer could not be read, so no message was requested",
    ResponseStatus.FAILED: "the call failed after its retries",
    ResponseStatus.OWED: "not requested yet",
}
MOST_CAUSES = 8


@dataclass(frozen=True, kw_only=True)
class Progress(Answer):
    """The progress of a run. failures: what is missing and why; cost: a sentence, '' for calls without a price."""

    stages: Table
    messages: Table
    calls: Table
    failures: tuple[str, ...]
    cost: str


def progress(now: RunProgress, model: str) -> Progress:
    """Return how far a run of this model is; its sentence has no full stop."""
    messages = next(stage for stage in now.stages if stage.kind == MESSAGES)
    parts = [f"{messages.done:,} of {count(messages.expected, 'message')} written"]
    for stage in now.stages:
        if stage.kind == JUDGE:
            missing = f" ({stage.missing:,} missing)" if stage.missing else ""
            parts.append(f"{stage.done:,} judged{missing} by {stage.name}")
    stages = [
        attributes(stage, "share done missing expected") | {"stage": STAGES[stage.kind], "by": stage.name or model}
        for stage in now.stages
    ]
    return Progress(
        sentence=f"{now.status}: {'; '.join(parts)}",
        stages=Listing(
            stages,
            {
                "stage": Column("text", "Stage"),
                "by": Column("text", "By"),
                "share": Column("percent", "Progress", "Done or missing, of all planned"),
                "done": Column("count", "Done"),
                "missing": Column("count", "Missing"),
                "expected": Column("count", "Planned"),
            },
            "Stages of the run",
        ),
        messages=_messages(now),
        calls=_calls(now.cost),
        failures=_failures(now),
        cost=_cost(now),
    )


def _messages(now: RunProgress) -> Listing:
    outcomes = [
        (str(status), number, meaning)
        for status, meaning in STATUSES.items()
        if (number := now.responses.get(status, 0)) or status == ResponseStatus.OK
    ]
    if now.unjudged:
        outcomes.append(("unjudged", now.unjudged, "written, but not judged by every judge"))
    rows = [
        {"status": status, "messages": number, "share": number / now.expected if now.expected else None, "about": about}
        for status, number, about in outcomes
    ]
    columns = {
        "status": Column("text", "Messages"),
        "messages": Column("count", "Number"),
        "share": Column("percent", "Share"),
        "about": Column("text", "Meaning"),
    }
    return Listing(rows, columns, "Messages by outcome")


def _failures(now: RunProgress) -> tuple[str, ...]:
    """Return the most frequent causes of what is missing, and an example of what servers said."""
    texts = [
        f"{count(number, 'message' if stage == 'response' else stage)} missing: {status} ({cause})"
        for stage, status, cause, number in now.failures[:MOST_CAUSES]
    ]
    if others := now.failures[MOST_CAUSES:]:
        texts.append(f"{sum(number for *_, number in others):,} more of {len(others)} other causes")
    return *texts, *(f"{cause}, for example: {text}" for cause, text in sorted(now.errors.items()))


def _calls(cost: Cost) -> Listing:
    several = len({stage.used.model for stage in cost.stages}) > 1
    rows = []
    # A kind that CALLS does not have comes last.
    for stage in sorted(cost.stages, key=lambda stage: [*CALLS, stage.used.kind].index(stage.used.kind)):
        used = stage.used
        rows.append(
            attributes(used, "calls failed prompt_tokens cached_tokens completion_tokens")
            | {"kind": CALLS.get(used.kind, used.kind) + (f", {used.model}" if several else "")}
            | {"cached_tokens_share": used.cached_tokens / used.prompt_tokens if used.cached_tokens else None}
            | {"cost": "no price" if stage.amount is None else money(stage.amount, cost.currency)}
        )
    columns = {
        "kind": Column("text", "Kind"),
        "calls": Column("count", "Calls"),
        "failed": Column("count", "Failed"),
        "prompt_tokens": Column("count", "Prompt tokens"),
        "cached_tokens": Column("count", "Cached"),
        "completion_tokens": Column("count", "Completion tokens"),
        "cost": Column("text", "Cost"),
    }
    return Listing(rows, columns, "Calls and cost")


def _cost(now: RunProgress) -> str:
    """Return what the calls cost in all, what of it this run paid, and the cap if the run can still reach it or has
    exceeded it."""
    cost = now.cost
    if not cost.stages:
        return "Imported runs have no calls." if now.imported else "No calls yet."
    if not cost.shown:
        return ""
    total = f"Cost{' so far' if now.active else ''}: {cost.text}."
    if cost.paid < cost.known_amount:
        total += f" This run paid {money(cost.paid, cost.currency)}; the rest was recorded before."
    if cost.above_cap_text:
        return f"{total} It {cost.above_cap_text}."
    if cost.cap is not None and (now.active or now.status in RESUMABLE):
        return f"{total} It stops once it has paid {money(cost.cap, cost.currency)}."
    return total
