"""The flows behind a cell of a heatmap, with the words that a person reads."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from cimemories.analysis.cube import IdentifierRule
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.heatmap_axes import By
from cimemories.curation.consensus import INAPPROPRIATE, NECESSARY
from cimemories.store import datasets

_RETAINED = """
    WITH flow AS (
        SELECT *, {identifier} AS identifier, least(?::INTEGER, draws) AS k FROM {flow} WHERE retained AND draws > 0
    ),
    silent AS (
        SELECT *, CASE WHEN reveals > draws - k THEN 0.0
            ELSE exp(lgamma(draws - reveals + 1) - lgamma(draws - reveals - k + 1)
                   - lgamma(draws + 1) + lgamma(draws - k + 1)) END AS q
        FROM flow
    )
"""
_CELL_FLOWS = (
    _RETAINED
    + f"""
    SELECT profile, attribute, key, domain, event, context, label, decided, reveals, draws, 1 - q AS violation
    FROM silent
    WHERE label IN ({NECESSARY}, {INAPPROPRIATE}) AND NOT (label = {INAPPROPRIATE} AND identifier)
      AND {{there}}
    ORDER BY label DESC, reveals::DOUBLE / draws DESC, profile, ordinal, context
    """
)
_LEAKS = (
    _RETAINED
    + f"""
    SELECT profile, attribute, key, domain, event, context, label, decided, reveals, draws, 1 - q AS violation
    FROM silent WHERE label = {INAPPROPRIATE} AND NOT identifier AND reveals > 0
    ORDER BY reveals::DOUBLE / draws DESC, profile, context, ordinal
    """
)
_IDENTIFIER = {
    IdentifierRule.EXACT: "bio",
    IdentifierRule.SUBSTRING: "regexp_matches(lower(key), 'name|address|sex|age')",
    IdentifierRule.NONE: "false",
}
_COLUMN = {By.DOMAIN: "domain", By.EVENT: "event", By.ATTRIBUTE: "key"}


def cell_flows(
    flows: Flows, asked: Scope, cell: Mapping[By, str], n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> pd.DataFrame:
    """The labelled flows of one cell: profile, attribute, key, domain, event, context, label (code), decided, reveals,
    draws, violation, user (the profile's name), statement, recipient; inappropriate first, most revealed on top.

    cell: the places that the cell belongs to, by their ids in heatmap_axes.
    """
    clauses, values = ["true"], list[object]()
    for by, place in cell.items():
        if by in (By.RECIPIENT, By.SPHERE):
            ids = _contexts(flows, asked, by, place)
            clauses.append(f"context IN ({', '.join('?' * len(ids)) or 'NULL'})")
            values += ids
        elif by in (By.CONTEXT, By.PROFILE):
            clauses.append(f"{by} = ?")
            values.append(int(place) if place.isascii() and place.isdigit() and len(place) < 16 else -1)
        else:
            clauses.append(f"{_COLUMN[by]} = ?")
            values.append(place)
    sql = _CELL_FLOWS.replace("{there}", " AND ".join(clauses))
    return _named(flows, asked, _ask(flows, asked, sql, rule, [n, *values]))


def leaks(flows: Flows, asked: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> pd.DataFrame:
    """Every inappropriate flow that was revealed at least once, in the columns of cell_flows, most revealed on top."""
    return flows.remember(
        ("leaks", asked.version, rule),
        lambda: _named(flows, asked, _ask(flows, asked, _LEAKS, rule, [asked.run.samples])),
    )


def _contexts(flows: Flows, asked: Scope, by: By, place: str) -> list[int]:
    with flows.store.read() as connection:
        rows = datasets.contexts(connection, asked.run.dataset)
    return [
        row.id for row in rows if (row.context.recipient if by == By.RECIPIENT else row.context.sphere or "") == place
    ]


def _named(flows: Flows, asked: Scope, frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with the words that a person reads: the user's name and the memory statement."""

    def wording() -> tuple[dict[int, str], dict[int, str], dict[int, str]]:
        with flows.store.read() as connection:
            people, memories = datasets.wording(connection, asked.run.dataset)
            there = {row.id: row.context.recipient for row in datasets.contexts(connection, asked.run.dataset)}
        return people, memories, there

    # Of a thousand profiles these are a hundred thousand texts.
    users, statements, recipients = flows.remember(("wording", asked.run.dataset, asked.dataset_revision), wording)
    return frame.assign(
        user=[users[p] for p in frame["profile"]],
        statement=[statements[a] for a in frame["attribute"]],
        recipient=[recipients[c] for c in frame["context"]],
    )


def _ask(flows: Flows, asked: Scope, sql: str, rule: IdentifierRule, parameters: list[object]) -> pd.DataFrame:
    text = sql.replace("{identifier}", _IDENTIFIER[rule])
    return flows.query(asked, text, parameters)
