"""The flows, the responses and the claims of a run as columns, to compute with them elsewhere. Flows are one array a
column, in which texts that repeat are codes: seven million rows, of a thousand profiles, in 0.2 GB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from cimemories.flows.flows import Flows, frame_of, typed
from cimemories.flows.labels import LABELS, TOO_FEW, TOO_FEW_NAME, UNLABELLED
from cimemories.flows.scope import Scope, judge_title
from cimemories.model import JudgementStatus, Strength
from cimemories.store import datasets, judgements, runs
from cimemories.store.engine import Store
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import RunRow

Array = npt.NDArray[Any]
UNLABELLED_NAME = "unlabelled"
_NAMES = {TOO_FEW: TOO_FEW_NAME, UNLABELLED: UNLABELLED_NAME, **LABELS}
LABEL_WORDS = tuple(str(_NAMES[code]) for code in sorted(_NAMES))  # by code, from the lowest on


@dataclass(frozen=True)
class Coded:
    """A column of texts. codes: the place of each row's text in `words`, -1 for none; no two words are equal."""

    codes: npt.NDArray[np.signedinteger[Any]]
    words: tuple[str, ...]


Columns = Mapping[str, Array | Coded]

ATTRIBUTE_COLUMNS = ["profile", "attribute", "key", "value", "domain", "event", "statement"]
_READ = ["judge", "response", "profile", "context", "sample", "memory"]
_CLAIM = ["judge", "response", "attribute", "strength", "quote", "start", "end", "grounded"]
_TEXTS = ("key", "domain", "event")
_WORDS = "SELECT " + ", ".join(f"enum_range(first({text})) AS {text}" for text in _TEXTS) + " FROM {rows}"
_FLOWS = """
    SELECT profile, attribute, {codes}, context, (label - ?)::TINYINT AS label, decided, bio AS identifier, retained,
           expected, draws, reveals
    FROM {{rows}} WHERE held
"""
# The smallest integers that hold so many words: what pandas and Arrow keep, so that nothing is copied for them.
_SIZES = ((127, "TINYINT", np.int8), (32_767, "SMALLINT", np.int16), (2**31 - 1, "INTEGER", np.int32))


def flow_columns(flows: Flows, scope: Scope) -> Columns:
    """Return the flows of a run by profile, attribute and context: run, profile (id), user, attribute (id), key,
    domain, event, context (id), recipient, task, sphere, label (a word of LABEL_WORDS), decided, identifier, retained,
    expected, draws, reveals, judge (whose claims count), simulated. Empty columns for a run that plans nothing.

    Attributes that no memory held are no flows and have no row.
    """
    words = _words(flows, scope)
    codes = ", ".join(f"coalesce(enum_code({text})::{_size(words[text])[1]}, -1) AS {text}" for text in _TEXTS)
    counts = flows.arrays(scope, _FLOWS.format(codes=codes), [min(_NAMES)])
    with flows.store.read() as connection:
        users = datasets.profile_names(connection, scope.run.dataset)
        contexts = {row.id: row.context for row in datasets.contexts(connection, scope.run.dataset)}
    of_context: dict[str, Mapping[int, str | None]] = {
        "recipient": {i: item.recipient for i, item in contexts.items()},
        "task": {i: item.task for i, item in contexts.items()},
        "sphere": {i: item.sphere for i, item in contexts.items()},
    }
    rows = len(counts["profile"])
    coded = {text: Coded(counts[text], words[text]) for text in _TEXTS}
    return {
        "run": Coded(np.zeros(rows, np.int8), (scope.run.id,)),
        "profile": counts["profile"],
        "user": _looked_up(counts["profile"], users),
        "attribute": counts["attribute"],
        **coded,
        "context": counts["context"],
        **{name: _looked_up(counts["context"], texts) for name, texts in of_context.items()},
        "label": Coded(counts["label"], LABEL_WORDS),
        **{name: counts[name] for name in ("decided", "identifier", "retained", "expected", "draws", "reveals")},
        "judge": Coded(np.zeros(rows, np.int8), (scope.judge_text,)),
        "simulated": np.full(rows, bool(scope.simulated)),
    }


def stacked(parts: Sequence[Columns]) -> Columns:
    """Return the rows of all parts, one part below the other. Parts have the same columns, and there is at least one.
    A text that several parts have gets one code."""
    columns: dict[str, Array | Coded] = {}
    for name in parts[0]:
        every = [part[name] for part in parts]
        coded = [column for column in every if isinstance(column, Coded)]
        if not coded:
            columns[name] = np.concatenate([column for column in every if not isinstance(column, Coded)])
            continue
        words = tuple(dict.fromkeys(word for column in coded for word in column.words))
        place = {word: code for code, word in enumerate(words)}
        # -1, of a row without a text, picks the last place of the table.
        tables = [np.array([*(place[word] for word in c.words), -1], _size(words)[2]) for c in coded]
        codes = np.concatenate([table[c.codes] for table, c in zip(tables, coded, strict=True)])
        columns[name] = Coded(codes, words)
    return columns


def arrow_table(columns: Columns) -> pa.Table:
    """Return the columns as an Arrow table. No number and no code is copied; truth values are, which Arrow packs into
    bits."""

    def coded(column: Coded) -> pa.DictionaryArray:
        missing = column.codes < 0
        codes = pa.array(column.codes, mask=missing) if missing.any() else pa.array(column.codes)
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(column.words), pa.string()))

    return pa.table({n: coded(c) if isinstance(c, Coded) else pa.array(c) for n, c in columns.items()})


def _words(flows: Flows, scope: Scope) -> dict[str, tuple[str, ...]]:
    row = flows.query(scope, _WORDS).iloc[0]
    # In a run without rows the first text is null, and so is its range.
    return {text: tuple(str(word) for word in row[text]) if row[text] is not None else () for text in _TEXTS}


def _size(words: Sequence[str]) -> tuple[int, str, type[np.signedinteger[Any]]]:
    return next(size for size in _SIZES if len(words) <= size[0])


def _looked_up(ids: Array, texts: Mapping[int, str | None]) -> Coded:
    """Return the text of each id. Ids are those of the record, which counts from 1: a table by id is small and one
    look-up a row is all that it takes."""
    words = tuple(dict.fromkeys(text for text in texts.values() if text is not None))
    place = {word: code for code, word in enumerate(words)}
    table = np.full(max(texts, default=0) + 1, -1, _size(words)[2])
    for own, text in texts.items():
        if text is not None:
            table[own] = place[text]
    return Coded(table[ids], words)


def response_columns(store: Store, scope: Scope) -> pd.DataFrame:
    """Return the responses of a run, planned ones that are missing too: run, profile (id), user, context (id),
    recipient, task, sphere, sample (from 0), response (id), status, cause, message (None where there is none),
    judgement (status of the scope's first judge; None while it is owed), judgement_cause, reveals.

    reveals: how many attributes the message reveals in full, as the scope counts it; <NA> where not every judge that is
    counted has judged it. What the memory of the message did not hold is no reveal.
    """
    run = scope.run
    with store.read() as connection:
        users = datasets.profile_names(connection, run.dataset)
        contexts = {row.id: row.context for row in datasets.contexts(connection, run.dataset)}
        held = judgements.partial_memories(connection, run.id)
        rows = [
            (profile, row)
            for profile in runs.profile_ids(connection, run.id)
            for row in runs.run_responses(connection, run.id, scope.judge.id, profile)
        ]
        judged = Counter(int(row.response) for row in judgements.judged(connection, run.id, scope.judge_ids))
        claims = Counter[tuple[int, int]]()
        for row in judgements.run_claims(connection, run.id, scope.judge_ids, full=True, grounded=scope.grounded):
            claims[row.response, row.attribute] += 1
    memory = {row["id"]: row["memory"] for _, row in rows}
    revealed = Counter(
        response
        for (response, attribute), judges in claims.items()
        if judges >= scope.need and judgements.memory_holds(held, memory[response], attribute)
    )
    judged_by_all = {response for response, judges in judged.items() if judges == len(scope.judge_ids)}
    of_rows = [contexts[row["context"]] for _, row in rows]
    return pd.DataFrame(
        {
            "run": run.id,
            "profile": np.array([profile for profile, _ in rows], np.int64),
            "user": [users[profile] for profile, _ in rows],
            "context": np.array([row["context"] for _, row in rows], np.int64),
            "recipient": [item.recipient for item in of_rows],
            "task": [item.task for item in of_rows],
            "sphere": [item.sphere for item in of_rows],
            "sample": np.array([row["sample"] for _, row in rows], np.int64),
            "response": np.array([row["id"] for _, row in rows], np.int64),
            "status": [row["status"] for _, row in rows],
            "cause": [row["cause"] for _, row in rows],
            "message": [row["text"] for _, row in rows],
            "judgement": [None if row["judgement"] == JudgementStatus.OWED else row["judgement"] for _, row in rows],
            "judgement_cause": [row["judgement_cause"] for _, row in rows],
            "reveals": pd.array(
                [revealed[row["id"]] if row["id"] in judged_by_all else None for _, row in rows], dtype="Int64"
            ),
        }
    )


def claim_frame(store: Store, run: RunRow, judges: Sequence[JudgeRow], *, silent: bool = False) -> pd.DataFrame:
    """Return what these judges claim that the messages of a run reveal, one row a claim, ordered by profile, context,
    sample, judge and attribute: run, profile (id), user, context (id), recipient, task, sphere, sample (from 0),
    response (id), attribute (id), key, domain, statement, judge, judge_id, channel, strength, quote, start, end,
    grounded, held (the message's memory held the attribute: others count as no reveal).

    silent: add a row for every attribute of a judged message that the judge does not claim, without a strength. A
    message that a judge has not read has no row with that judge.
    """
    ids = [judge.id for judge in judges]
    with store.read() as connection:
        users = datasets.profile_names(connection, run.dataset)
        contexts = {row.id: row.context for row in datasets.contexts(connection, run.dataset)}
        about = frame_of(datasets.attribute_rows(connection, run.dataset), ATTRIBUTE_COLUMNS)
        memories = judgements.partial_memories(connection, run.id)
        read = typed(frame_of(judgements.judged(connection, run.id, ids, *_READ[2:]), _READ), _READ[:-1])
        claims = typed(frame_of(judgements.run_claims(connection, run.id, ids, *_CLAIM[3:]), _CLAIM), _CLAIM[:3])
    about = typed(about, ["profile", "attribute"])
    if silent:
        every = read[["judge", "response", "profile"]].merge(about[["profile", "attribute"]], on="profile")
        claims = every.drop(columns="profile").merge(claims, how="left", on=_CLAIM[:3])
    frame = claims.merge(read, on=["judge", "response"]).merge(about, on=["profile", "attribute"])
    order = frame["judge"].map({judge: at for at, judge in enumerate(ids)})
    frame = frame.assign(order=order).sort_values(
        ["profile", "context", "sample", "order", "attribute"], ignore_index=True
    )
    pairs = zip(frame["memory"], frame["attribute"], strict=True)
    held = [judgements.memory_holds(memories, memory, attribute) for memory, attribute in pairs]

    def named(column: str, names: Mapping[int, str | None]) -> pd.Series[Any]:
        return frame[column].map(names).astype("category")

    of_context = {
        name: named("context", {i: getattr(item, name) for i, item in contexts.items()})
        for name in ("recipient", "task", "sphere")
    }
    return pd.DataFrame(
        {
            "run": pd.Series(run.id, frame.index, dtype="category"),
            "profile": frame["profile"],
            "user": named("profile", users),
            "context": frame["context"],
            **of_context,
            **{name: frame[name] for name in ("sample", "response", "attribute")},
            **{name: frame[name].astype("category") for name in ("key", "domain", "statement")},
            "judge": named("judge", {judge.id: judge_title(judge, judges) for judge in judges}),
            "judge_id": frame["judge"],
            "channel": named("judge", {judge.id: judge.channel for judge in judges}),
            "strength": frame["strength"].astype(pd.CategoricalDtype([str(strength) for strength in Strength])),
            "quote": frame["quote"],
            **{name: frame[name].astype("Int64") for name in ("start", "end")},
            "grounded": frame["grounded"].astype("boolean"),
            "held": np.array(held, np.bool_),
        }
    )
