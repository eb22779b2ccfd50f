"""What the commands about labels print: tables and JSON on standard output, notes on standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cimemories.cli import output

if TYPE_CHECKING:
    import pandas as pd

    from cimemories.analysis.families import Kinship
    from cimemories.analysis.labellings_agreement import Agreement
    from cimemories.analysis.rule import AppliedRule
    from cimemories.analysis.survival import Contexts, Survival
    from cimemories.analysis.table2 import Statistic
    from cimemories.analysis.whatif import WhatIf
    from cimemories.store.labellings import LabellingRow
    from cimemories.store.rules import RuleRow


def survival(
    dataset: str,
    row: LabellingRow,
    found: Survival,
    kept: Contexts,
    lines: Sequence[Statistic],
    kin: Sequence[Kinship],
    as_json: bool,
) -> None:
    """Everything about one labelling, its warnings last."""
    from cimemories.analysis.pair_groups import GroupBy

    if as_json:
        output.line(output.as_json_text(_survival_object(dataset, row, found, kept, lines, kin)))
        return
    output.line(
        f"survival {output.percent(found.share)} of {found.pairs:,} labelled pairs "
        f"({found.necessary:,} necessary, {found.inappropriate:,} inappropriate, {found.ambiguous:,} ambiguous); "
        f"{found.planned:,} pairs in all"
    )
    output.line(f"rule: {found.rule.name} ({found.rule.words})")
    _shares("domain", found.by[GroupBy.DOMAIN])
    _shares("sphere", found.by[GroupBy.SPHERE])
    output.table(
        [("who dissents", False), ("how", False), ("pairs", True), ("of ambiguous", True)],
        [(r["who"], r["how"], f"{r['pairs']:,}", output.percent(r["share"])) for r in _records(found.dissent)],
    )
    discarded = ", ".join(f"{n:,} {reason}" for reason, n in kept.discarded.items())
    output.line(f"contexts: {kept.retained:,} retained; discarded: {discarded}")
    output.table(
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
        output.note("note: imported as shares, no votes")
    if row.simulated:
        output.note("note: simulated labels; they say nothing about any real model")
    if found.rule.note:
        output.note(f"note: {found.rule.note}")
    for item in kin:
        output.note(f"warning: {item.run_id}: {item.warning}")


def _survival_object(
    dataset: str,
    row: LabellingRow,
    found: Survival,
    kept: Contexts,
    lines: Sequence[Statistic],
    kin: Sequence[Kinship],
) -> dict[str, object]:
    from cimemories.analysis.table2 import PAPER

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


def rules(rows: Sequence[RuleRow], as_json: bool) -> None:
    """The paper's rule and the named ones."""
    from cimemories.store.rules import PAPER

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
        first = {"name": PAPER, "threshold": 1.0, "priors": None, "current": paper}
        output.line(output.as_json_text([{**first, "annotator": None, "created": None}, *named]))
        return
    output.table(
        [("rule", False), ("threshold", True), ("priors", False), ("by", False), ("", False)],
        [
            (PAPER, "100 %", "of the labelling", "", "current" if paper else ""),
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


def effect(
    row: LabellingRow | None, found: WhatIf | None, as_json: bool, *, name: str, saved: bool, current: bool
) -> None:
    """What a rule does to a labelling, and what has become of the rule."""
    from cimemories.analysis.pair_groups import GroupBy

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
        output.line(output.as_json_text(answer))
        return
    output.note(f"'{name}': {'saved' if saved else 'not saved'}{', current' if current else ''}")
    if found is None:
        return
    output.line(
        f"{found.changed:,} of {found.pairs:,} labelled pairs change; survival "
        f"{output.percent(found.survival_before)} -> {output.percent(found.survival_after)}"
    )
    for a, b, n in found.changes:
        output.line(f"  {n:,} {a} -> {b}")
    changed = found.by[GroupBy.DOMAIN]
    output.table(
        [("domain", False), ("pairs", True), ("change", True), ("before", True), ("after", True)],
        [
            (
                r["name"],
                f"{r['pairs']:,}",
                f"{r['changed']:,}",
                output.percent(r["survival_before"]),
                output.percent(r["survival_after"]),
            )
            for r in _records(changed)
        ],
    )


def agreements(dataset: str, found: Sequence[Agreement], as_json: bool) -> None:
    """Every two labellings side by side."""
    if as_json:
        output.line(output.as_json_text([_agreement(item) for item in found]))
        return
    if not found:
        output.note(f"'{dataset}' has fewer than two labellings, so there is nothing to compare.")
        return
    output.table(
        [("first", False), ("second", False), ("same label", True), ("pairs", True), ("kappa", True), ("", False)],
        [
            (
                f"{item.first.model} ({item.first.id})",
                f"{item.second.model} ({item.second.id})",
                output.percent(item.share),
                f"{item.pairs:,}",
                _figure(item.kappa),
                "simulated" if item.first.simulated or item.second.simulated else "",
            )
            for item in found
        ],
    )


def _agreement(item: Agreement) -> dict[str, object]:
    from cimemories.analysis.labellings_agreement import ORDER
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
    output.table(
        [(title, False), ("survival", True), ("necessary", True), ("inappropriate", True), ("pairs", True)],
        [
            (
                r["name"],
                output.percent(r["survival"]),
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
