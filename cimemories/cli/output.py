"""What the command line prints: tables and JSON on standard output, progress and notes on standard error."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from cimemories.store import calls, judgements, work
from cimemories.store import datasets as store_datasets
from cimemories.store import labellings as store_labellings
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store
from cimemories.texts import CONTROL, visible

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.agreement.models import Agreement
    from cimemories.flows.labels import AppliedRule
    from cimemories.formats.importing import Imported
    from cimemories.labels.survival import Contexts, Statistic, Survival
    from cimemories.labels.whatif import WhatIf
    from cimemories.llm.executor import Progress as Done
    from cimemories.metrics.headline import Kinship
    from cimemories.store.labellings import LabellingRow, RuleRow

WIDEST = 500  # characters of a table that is shown whole
LOOK_SECONDS = 0.3  # between two looks at the record for the progress of a generation

err = Console(stderr=True, highlight=False, soft_wrap=True)


def line(text: str) -> None:
    """One line on standard output, as it is but for control characters: a terminal would obey them."""
    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """One line on standard error, for people."""
    err.print(escape(visible(text)))


def as_json_text(value: object) -> str:
    """JSON for scripts, control characters escaped: a program reads what was meant, a terminal obeys nothing."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    return re.sub(CONTROL, lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[object]], *, whole: bool = False) -> None:
    """A table on standard output; columns are (title, numbers), text is shown as it is. whole: nothing is cut or broken
    to fit the terminal."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title, numbers in columns:
        shown.add_column(title, justify="right" if numbers else "left", no_wrap=numbers)
    for row in rows:
        shown.add_row(*(escape(visible(str(cell))) for cell in row))
    Console(highlight=False, width=WIDEST if whole else None).print(shown)


def percent(value: float | None) -> str:
    """A share with one decimal; a dash where it is undefined."""
    return "–" if value is None or value != value else f"{100 * value:.1f} %"


def imported(outcome: Imported, as_json: bool) -> None:
    row = outcome.dataset
    if as_json:
        told = {"new": outcome.new, "notes": list(outcome.notes), "imported_runs": list(outcome.runs)}
        line(as_json_text({**_dataset(row), **told}))
        return
    verb = "imported" if outcome.new else "already here, nothing doubled:"
    named = f"{', '.join(outcome.runs)} of '{row.name}'" if outcome.runs else f"'{row.name}'"
    line(f"{verb} {named}: {row.profiles} profiles, {row.attributes:,} attributes, {row.contexts} contexts")
    for text in outcome.notes:
        note(f"note: {text}")


def _dataset(row: store_datasets.DatasetRow) -> dict[str, object]:
    return {
        "id": row.id,
        "name": row.name,
        "counts": {
            "profiles": row.profiles,
            "attributes": row.attributes,
            "contexts": row.contexts,
            "labellings": row.labellings,
            "runs": row.runs,
        },
        "status": "labelled" if row.labellings else "unlabelled",
        "simulated": row.simulated,
        "origin": row.origin,
        "created": row.created,
    }


def datasets(store: Store, as_json: bool) -> None:
    with store.read() as connection:
        rows = store_datasets.all_rows(connection)
    if as_json:
        line(as_json_text([_dataset(row) for row in rows]))
        return
    table(
        [
            ("name", False),
            ("profiles", True),
            ("attributes", True),
            ("contexts", True),
            ("labellings", True),
            ("", False),
        ],
        [
            (r.name, r.profiles, f"{r.attributes:,}", r.contexts, r.labellings, "simulated" if r.simulated else "")
            for r in rows
        ],
    )


def runs(store: Store, as_json: bool) -> None:
    with store.read() as connection:
        rows = store_runs.all_rows(connection)
        names = {row.id: row.name for row in store_datasets.all_rows(connection)}
        sources = calls.origins(connection, [row.id for row in rows]) if as_json else {}
    if as_json:
        found = [
            {
                "id": r.id,
                "name": r.name,
                "dataset": names[r.dataset],
                "model": r.model,
                "samples": r.samples,
                "counts": {
                    "expected": r.expected,
                    "judged": r.judged,
                    "responses": r.responses,
                    "judgements": r.judgements,
                },
                "coverage": r.coverage,
                "status": str(r.status),
                "error": r.error,
                "simulated": r.simulated,
                "created": r.created,
                "finished": r.finished,
                "answers": [source.as_json() for source in sources[r.id]],
            }
            for r in rows
        ]
        line(as_json_text(found))
        return
    table(
        [("id", False), ("name", False), ("status", False), ("judged", True), ("of", True), ("", False)],
        [(r.id, r.name, r.status, r.judged, r.expected, "simulated" if r.simulated else "") for r in rows],
    )


def labellings(store: Store, as_json: bool) -> None:
    with store.read() as connection:
        rows = store_labellings.all_rows(connection)
        names = {row.id: row.name for row in store_datasets.all_rows(connection)}
    if as_json:
        found = [
            {
                "id": r.id,
                "name": f"{r.model} on {names[r.dataset]}",
                "dataset": names[r.dataset],
                "model": r.model,
                "draws": r.draws,
                "counts": {"expected": r.expected, **r.ballots},
                "status": str(r.status),
                "error": r.error,
                "simulated": r.simulated,
            }
            for r in rows
        ]
        line(as_json_text(found))
        return
    table(
        [
            ("id", False),
            ("dataset", False),
            ("model", False),
            ("status", False),
            ("ballots", True),
            ("of", True),
            ("", False),
        ],
        [
            (
                r.id,
                names[r.dataset],
                r.model,
                r.status,
                r.ballots.get("ok", 0),
                r.expected,
                "simulated" if r.simulated else "",
            )
            for r in rows
        ],
    )


def generations(store: Store, as_json: bool) -> None:
    from cimemories.curation.authoring import report

    with store.read() as connection:
        rows = store_datasets.all_generations(connection)
    if as_json:
        line(as_json_text([report(store, row.id).as_json() for row in rows]))
        return
    table(
        [
            ("id", False),
            ("name", False),
            ("model", False),
            ("status", False),
            ("parts", True),
            ("of", True),
            ("dataset", True),
            ("", False),
        ],
        [
            (
                r.id,
                r.name,
                r.model,
                r.status,
                r.settled,
                r.expected,
                "–" if r.dataset is None else r.dataset,
                "simulated" if r.simulated else "",
            )
            for r in rows
        ],
    )


def _owed(store: Store, work_id: str) -> int:
    with store.read() as connection:
        if work_id.startswith("generation-"):
            return store_datasets.progress(connection, work_id)[1]
        if work_id.startswith("run-"):
            row = store_runs.named(connection, work_id)
            judges = [j for j in judgements.of_run(connection, work_id) if j.kind == "llm"]
            open_responses = sum(row.responses.get(s, 0) for s in store_runs.RETRIABLE)
            answered = row.responses.get("ok", 0)
            return open_responses * (1 + len(judges)) + (answered - row.judged) * len(judges)
        row_ = next(r for r in store_labellings.all_rows(connection) if r.id == work_id)
        return sum(row_.ballots.get(s, 0) for s in store_labellings.RETRIABLE)


@contextmanager
def progress(store: Store, work_id: str) -> Iterator[Callable[[Done], None]]:
    """A progress line on standard error; yields what an execution reports to."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[extra]}"),
    )
    with Progress(*columns, console=err) as bar:
        task = bar.add_task(work_id, total=_owed(store, work_id), extra="")

        def report(done: Done) -> None:
            failed = sum(done.failed.values())
            extra = f"{done.prompt_tokens + done.completion_tokens:,} tokens" + (f", {failed} failed" if failed else "")
            bar.update(task, completed=done.done, extra=extra)

        if not work_id.startswith("generation-"):
            yield report
            return
        parts = _Parts(store, work_id)

        def report_parts(done: Done) -> None:
            report(done)
            # Calls are no measure here: how many will be asked for again is not known beforehand.
            bar.update(task, completed=parts.settled(), extra=f"{bar.tasks[0].fields['extra']}{parts.cost(done)}")

        bar.update(task, completed=parts.settled())
        yield report_parts
        bar.update(task, completed=parts.settled(at_once=True))


class _Parts:
    """Settled parts of a generation, looked up now and then, and what its tokens cost."""

    def __init__(self, store: Store, work_id: str) -> None:
        self.store, self.work_id, self.looked, self.count = store, work_id, 0.0, 0
        with store.read() as connection:
            asked = store_datasets.generation_named(connection, work_id).manifest.get("asked")
        prices = asked if isinstance(asked, dict) else {}
        self.prices = float(prices.get("price_in", 0)), float(prices.get("price_out", 0))

    def settled(self, *, at_once: bool = False) -> int:
        if at_once or time.monotonic() - self.looked > LOOK_SECONDS:
            with self.store.read() as connection:
                self.count = store_datasets.progress(connection, self.work_id)[0]
            self.looked = time.monotonic()
        return self.count

    def cost(self, done: Done) -> str:
        from cimemories.curation.authoring import cost

        if not any(self.prices):
            return ""
        return f", cost {cost(done.prompt_tokens, done.completion_tokens, *self.prices):,.2f}"


def outcome(store: Store, work_id: str) -> None:
    """What came of a piece of work, on standard error: what is missing and why, never hidden."""
    if work_id.startswith("generation-"):
        _written(store, work_id)
        return
    with store.read() as connection:
        work.load(connection, work_id)
        if work_id.startswith("run-"):
            row = store_runs.named(connection, work_id)
            note(f"{work_id}: {row.judged:,} of {row.expected:,} responses judged ({percent(row.coverage)})")
            for stage, status, cause, count in store_runs.failures(connection, work_id):
                note(f"  missing: {count} {stage}s {status} ({cause})")
            for cause, error in store_runs.call_errors(connection, work_id).items():
                note(f"  {cause}, for example: {error}")
            if row.manifest.get("cap") is not None:
                _above_cap(store, work_id)
            return
        labelled = next(r for r in store_labellings.all_rows(connection) if r.id == work_id)
        note(f"{work_id}: {labelled.ballots.get('ok', 0):,} of {labelled.expected:,} ballots counted")
        for status, cause, count in store_labellings.failures(connection, work_id):
            note(f"  missing: {count} ballots {status} ({cause})")


def _above_cap(store: Store, run_id: str) -> None:
    from cimemories.evaluation.costs import run_cost

    if words := run_cost(store, run_id).above_cap_words():
        note(f"  {words}")


def _written(store: Store, work_id: str) -> None:
    from cimemories.curation.authoring import report

    for text in report(store, work_id).lines():
        note(text)


# ---- labels output
#
# What the commands about labels print: tables and JSON on standard output, notes on standard error.


def show_survival(
    dataset: str,
    row: LabellingRow,
    found: Survival,
    kept: Contexts,
    lines: Sequence[Statistic],
    kin: Sequence[Kinship],
    as_json: bool,
) -> None:
    """Everything about one labelling, its warnings last."""
    from cimemories.labels.votes import GroupBy

    if as_json:
        line(as_json_text(_survival_object(dataset, row, found, kept, lines, kin)))
        return
    line(
        f"survival {percent(found.share)} of {found.pairs:,} labelled pairs "
        f"({found.necessary:,} necessary, {found.inappropriate:,} inappropriate, {found.ambiguous:,} ambiguous); "
        f"{found.planned:,} pairs in all"
    )
    line(f"rule: {found.rule.name} ({found.rule.words})")
    _shares("domain", found.by[GroupBy.DOMAIN])
    _shares("sphere", found.by[GroupBy.SPHERE])
    table(
        [("who dissents", False), ("how", False), ("pairs", True), ("of ambiguous", True)],
        [(r["who"], r["how"], f"{r['pairs']:,}", percent(r["share"])) for r in _records(found.dissent)],
    )
    discarded = ", ".join(f"{n:,} {reason}" for reason, n in kept.discarded.items())
    line(f"contexts: {kept.retained:,} retained; discarded: {discarded}")
    table(
        [("Table 2", False), ("mean", True), ("sd", True), ("over", True), ("published", False)],
        [
            (
                line.name,
                _figure(line.mean),
                "" if line.sd is None else _figure(line.sd),
                f"{line.over:,} {line.unit}",
                f"{line.published.figure} ({line.published.place})" if line.published else "",
            )
            for line in lines
        ],
    )
    if found.imported:
        note("note: imported as shares, no votes")
    if row.simulated:
        note("note: simulated labels; they say nothing about any real model")
    if found.rule.note:
        note(f"note: {found.rule.note}")
    for item in kin:
        note(f"warning: {item.run_id}: {item.warning}")


def _survival_object(
    dataset: str,
    row: LabellingRow,
    found: Survival,
    kept: Contexts,
    lines: Sequence[Statistic],
    kin: Sequence[Kinship],
) -> dict[str, object]:
    from cimemories.labels.survival import PAPER

    return {
        "dataset": dataset,
        "labelling": row.id,
        "model": row.model,
        "simulated": row.simulated,
        "imported": found.imported,
        "rule": _rule(found.rule),
        "pairs": {
            "planned": found.planned,
            "labelled": found.pairs,
            "necessary": found.necessary,
            "inappropriate": found.inappropriate,
            "ambiguous": found.ambiguous,
        },
        "survival": _number(found.share),
        "by": {str(group_by): _records(frame) for group_by, frame in found.by.items()},
        "dissent": _records(found.dissent),
        "decisions": vars(found.decisions),
        "contexts": {"retained": kept.retained, "discarded": kept.discarded},
        "table2": [
            {
                "name": line.name,
                "mean": _number(line.mean),
                "sd": None if line.sd is None else _number(line.sd),
                "over": line.over,
                "unit": line.unit,
                "published": line.published and {"figure": line.published.figure, "place": line.published.place},
            }
            for line in lines
        ],
        "published_in": PAPER,
        "warnings": [{"run": item.run_id, "model": item.model, "warning": item.warning} for item in kin],
    }


def show_rules(rows: Sequence[RuleRow], as_json: bool) -> None:
    """The paper's rule and the named ones."""
    from cimemories.store.labellings import PAPER_RULE

    paper = not any(row.current for row in rows)
    if as_json:
        named = [
            {
                "name": row.name,
                "threshold": row.threshold,
                "priors": row.priors,
                "current": row.current,
                "annotator": row.annotator,
                "created": row.created,
            }
            for row in rows
        ]
        first = {"name": PAPER_RULE, "threshold": 1.0, "priors": None, "current": paper}
        line(as_json_text([{**first, "annotator": None, "created": None}, *named]))
        return
    table(
        [("rule", False), ("threshold", True), ("priors", False), ("by", False), ("", False)],
        [
            (PAPER_RULE, "100 %", "of the labelling", "", "current" if paper else ""),
            *(
                (
                    row.name,
                    f"{100 * row.threshold:.4g} %",
                    ", ".join(f"{key} {prior:.4g}" for key, prior in row.priors.items()),
                    row.annotator,
                    "current" if row.current else "",
                )
                for row in rows
            ),
        ],
    )


def show_effect(
    row: LabellingRow | None, found: WhatIf | None, as_json: bool, *, name: str, saved: bool, current: bool
) -> None:
    """What a rule does to a labelling, and what has become of the rule."""
    from cimemories.labels.votes import GroupBy

    if as_json:
        answer: dict[str, object] = {"name": name, "saved": saved, "current": current, "labelling": row and row.id}
        if found is not None:
            answer |= {
                "before": _rule(found.before),
                "after": _rule(found.after) | {"name": name},
                "pairs": found.pairs,
                "changed": found.changed,
                "decided": found.decided,
                "survival_before": _number(found.survival_before),
                "survival_after": _number(found.survival_after),
                "changes": [{"from": a, "to": b, "pairs": n} for a, b, n in found.changes],
                "by": {str(group_by): _records(frame) for group_by, frame in found.by.items()},
            }
        line(as_json_text(answer))
        return
    note(f"'{name}': {'saved' if saved else 'not saved'}{', current' if current else ''}")
    if found is None:
        return
    line(
        f"{found.changed:,} of {found.pairs:,} labelled pairs change; survival "
        f"{percent(found.survival_before)} -> {percent(found.survival_after)}"
    )
    for a, b, n in found.changes:
        line(f"  {n:,} {a} -> {b}")
    changed = found.by[GroupBy.DOMAIN]
    table(
        [("domain", False), ("pairs", True), ("change", True), ("before", True), ("after", True)],
        [
            (
                r["name"],
                f"{r['pairs']:,}",
                f"{r['changed']:,}",
                percent(r["survival_before"]),
                percent(r["survival_after"]),
            )
            for r in _records(changed)
        ],
    )


def show_agreements(dataset: str, found: Sequence[Agreement], as_json: bool) -> None:
    """Every two labellings side by side."""
    if as_json:
        line(as_json_text([_agreement(item) for item in found]))
        return
    if not found:
        note(f"'{dataset}' has fewer than two labellings, so there is nothing to compare.")
        return
    table(
        [("first", False), ("second", False), ("same label", True), ("pairs", True), ("kappa", True), ("", False)],
        [
            (
                f"{item.first.model} ({item.first.id})",
                f"{item.second.model} ({item.second.id})",
                percent(item.share),
                f"{item.pairs:,}",
                _figure(item.kappa),
                "simulated" if item.first.simulated or item.second.simulated else "",
            )
            for item in found
        ],
    )


def _agreement(item: Agreement) -> dict[str, object]:
    from cimemories.agreement.models import ORDER
    from cimemories.curation.consensus import LABELS

    return {
        "first": {"labelling": item.first.id, "model": item.first.model, "simulated": item.first.simulated},
        "second": {"labelling": item.second.id, "model": item.second.model, "simulated": item.second.simulated},
        "rules": [_rule(rule) for rule in item.rules],
        "pairs": item.pairs,
        "only_first": item.only_first,
        "only_second": item.only_second,
        "same": item.same,
        "share": _number(item.share),
        "kappa": _number(item.kappa),
        "labels": [str(LABELS[code]) for code in ORDER],
        "confusion": item.confusion.tolist(),
        "by_domain": _records(item.by_domain),
        "differing": len(item.differing),
    }


def _rule(rule: AppliedRule) -> dict[str, object]:
    return {"name": rule.name, "threshold": rule.threshold, "priors": rule.prior_by_key, "note": rule.note or None}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame for JSON: nan becomes null."""
    rows = frame.astype(object).to_dict("records")
    return [{str(k): None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]


def _shares(title: str, frame: pd.DataFrame) -> None:
    table(
        [(title, False), ("survival", True), ("necessary", True), ("inappropriate", True), ("pairs", True)],
        [
            (
                r["name"],
                percent(r["survival"]),
                f"{r['necessary']:,}",
                f"{r['inappropriate']:,}",
                f"{r['pairs']:,}",
            )
            for r in _records(frame)
        ],
    )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _figure(value: float) -> str:
    """A number with two decimals, whole ones without; a dash where it is undefined."""
    return "–" if math.isnan(value) else f"{value:.0f}" if value == int(value) else f"{value:.2f}"
