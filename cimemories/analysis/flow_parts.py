"""What the flow relation is joined from: planned and judged responses, attributes, reveals and decisions of one run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import sqlalchemy as sa

from cimemories.analysis.scopes import Labels, Scope, Verdicts
from cimemories.curation.consensus import CODES
from cimemories.model import Strength, is_bio
from cimemories.store import audits, claims_of_judges, decisions, judgements
from cimemories.store.claims_of_judges import Held
from cimemories.store.tables import attribute

PLACE = ["profile", "context"]
PAIR = ["attribute", "context"]
COLUMNS = ["id", "profile", "ordinal", "key", "domain", "event"]


def flow_parts(connection: sa.Connection, asked: Scope) -> dict[str, pd.DataFrame]:
    """The frames that flows are joined from: planned (a (profile, context) of the run), attributes, revealed, decided;
    and, only where some memory leaves an attribute out, held (an attribute in a context: expected, draws)."""
    run_id = asked.run.id
    held = claims_of_judges.partial_memories(connection, run_id)
    place = ["profile", "context", "level", "memory"]
    by_memory = frame_of(claims_of_judges.planned(connection, run_id), [*place, "expected"])
    draws = frame_of(claims_of_judges.draws(connection, run_id, asked.judge_ids), [*place, "draws"])
    by_memory = by_memory.merge(draws, how="left", on=place)
    by_memory["draws"] = by_memory["draws"].astype("float64").fillna(0).astype(np.int64)
    counts = {"level": "first", "expected": "sum", "draws": "sum"}
    planned = by_memory.groupby(PLACE, as_index=False, sort=False).agg(counts)
    attributes = _attributes(connection, planned)
    told = claims_of_judges.reveal_counts(connection, run_id, asked.judge_ids, asked.need, grounded=asked.grounded)
    revealed = frame_of(told, ["attribute", "context", "memory", "reveals"])
    revealed = _on_what_was_held(revealed, held)
    if asked.verdicts == Verdicts.PEOPLE:
        revealed = pd.concat([revealed, _people_before_the_judges(connection, asked, held)])
    counted = asked.labels == Labels.DECISIONS
    standing = decisions.standing(decisions.history(connection, asked.run.dataset)) if counted else {}
    decided = pd.DataFrame(
        [(a, c, CODES[d.label]) for (a, c), d in standing.items() if d.label is not None],
        columns=["attribute", "context", "label"],
    )
    parts = {
        "planned": planned,
        "attributes": attributes,
        "revealed": typed(revealed, [*PAIR, "reveals"]).groupby(PAIR, as_index=False, sort=False).sum(),
        "decided": typed(decided, [*PAIR, "label"]),
    }
    return parts | ({"held": _by_attribute(by_memory, held, attributes)} if held else {})


def _attributes(connection: sa.Connection, planned: pd.DataFrame) -> pd.DataFrame:
    """The attributes of these profiles; position: 0, 1, ... inside a profile, in their order."""
    columns = [attribute.c[name] for name in COLUMNS]
    profiles = sorted({int(p) for p in planned["profile"]})
    rows = connection.execute(sa.select(*columns).where(attribute.c.profile.in_(profiles)))
    found = frame_of(rows, ["attribute", *COLUMNS[1:]]).astype({"attribute": np.int64, "profile": np.int64})
    # By the rule of today: the record's own mark may have been made by an earlier one.
    found["bio"] = np.fromiter(map(is_bio, found["key"], found["domain"]), np.bool_, len(found))
    found["position"] = found.groupby("profile")["ordinal"].rank("dense").astype(np.int64) - 1
    return found


def _on_what_was_held(revealed: pd.DataFrame, held: Held) -> pd.DataFrame:
    """The same counts without those of responses whose memory did not hold the attribute."""
    if not held:
        return revealed[[*PAIR, "reveals"]]
    kept = [claims_of_judges.holds(held, m, a) for m, a in zip(revealed["memory"], revealed["attribute"], strict=True)]
    return revealed.loc[np.array(kept, np.bool_), [*PAIR, "reveals"]]


def _by_attribute(by_memory: pd.DataFrame, held: Held, attributes: pd.DataFrame) -> pd.DataFrame:
    """Planned and judged responses of each (attribute, context) whose memory holds the attribute: attribute, context,
    expected, draws. Those of which none is planned have no row."""
    own = attributes.groupby("profile")["attribute"]
    whole = {int(str(p)): ids.to_numpy(np.int64) for p, ids in own}
    partial = {name: np.fromiter(sorted(ids), np.int64, len(ids)) for name, ids in held.items()}
    rows = list(by_memory[["profile", "context", "memory", "expected", "draws"]].itertuples(index=False, name=None))
    memories = [partial[m] if m in partial else whole[int(p)] for p, _, m, _, _ in rows]
    sizes = [len(ids) for ids in memories]
    frame = pd.DataFrame(
        {
            "attribute": np.concatenate([np.empty(0, np.int64), *memories]),
            "context": np.repeat(by_memory["context"].to_numpy(np.int64), sizes),
            "expected": np.repeat(by_memory["expected"].to_numpy(np.int64), sizes),
            "draws": np.repeat(by_memory["draws"].to_numpy(np.int64), sizes),
        }
    )
    return frame.groupby(PAIR, as_index=False, sort=False).sum()


def _people_before_the_judges(connection: sa.Connection, asked: Scope, held: Held) -> pd.DataFrame:
    """By how much people's standing verdicts move the count of reveals: attribute, context, reveals (+ or -).

    In full counts as revealed, everything else does not. Where one of the judges has no judgement of the response, the
    flow has no draw there that a verdict could speak for, and the verdict waits.
    """
    stand = audits.standing(audits.of_run(connection, asked.run.id))
    places = audits.places(connection, stand)
    said = {j: judgements.claims(connection, j, (flow[0] for flow in stand)) for j in asked.judge_ids}
    memories = claims_of_judges.texts_of(connection, (flow[0] for flow in stand)) if held else {}
    rows = []
    for (response_id, attribute_id), verdict in stand.items():
        if any(response_id not in claims for claims in said.values()):
            continue
        if held and not claims_of_judges.holds(held, memories[response_id][0], attribute_id):
            continue
        own = [claims[response_id].get(attribute_id) for claims in said.values()]
        full = [c for c in own if c and c[0] == Strength.FULL and (c[1] is not None or not asked.grounded)]
        judged = len(full) >= asked.need
        context = places[response_id, attribute_id][0]
        rows.append((attribute_id, context, int(audits.says_revealed(verdict.verdict)) - int(judged)))
    return pd.DataFrame(rows, columns=[*PAIR, "reveals"])


def frame_of(rows: sa.CursorResult[tuple], columns: list[str]) -> pd.DataFrame:
    """What a query found. As plain tuples: pandas asks rows of the record for attributes one by one, which takes
    longer than everything else."""
    return pd.DataFrame([tuple(row) for row in rows], columns=columns)


def typed(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The frame with these columns as whole numbers, which an empty one does not tell by itself."""
    return frame.astype(dict.fromkeys(columns, np.int64))
