"""The gallery of leaks: what is in it, in which order, and what filters leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from judging_worlds import judged_world
from worlds import add_dataset, add_labels, add_run, ask, records

from cimemories.answers.leaks import grouped
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.leaks import gallery as gallery_module
from cimemories.leaks.basket import Item, basket_rows, item_of
from cimemories.leaks.examples import WHERE, Examples, in_order
from cimemories.leaks.examples import examples as all_examples
from cimemories.leaks.gallery import RANKS, Facet, phrase_of, run_ids, scopes_of, step
from cimemories.leaks.message import MOST_COMPARED, differences
from cimemories.leaks.table import leak_rows, with_excerpts
from cimemories.metrics.heatmap import cell_flows
from cimemories.model import Label, Strength
from cimemories.store import datasets, decisions, runs, work
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store
from cimemories.store.tables import response

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X, N], [X, X, X], [N, N, A]]]
REVEALS = [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]]
NAMES = {
    Facet.RUN: ["run-1", "run-2"],
    Facet.DOMAIN: ["health", "legal", "finance"],
    Facet.SPHERE: ["", "housing"],
    Facet.RECIPIENT: ["Landlord", "a, b"],
    Facet.PROFILE: [1, 2],
    **{facet: list(values) for facet, values in RANKS.items()},
}
ROWS = st.lists(
    st.tuples(*(st.sampled_from(values) for values in NAMES.values()), st.integers(1, 5)), min_size=1, max_size=30
)


FLOWS = Flows(Store.__new__(Store))  # nothing is asked of the record


def gallery(rows: list[tuple[object, ...]], private: float | list[float] = 1.0) -> Examples:
    """The gallery of these examples."""
    frame = pd.DataFrame(rows, columns=[*map(str, NAMES), "claimed"])
    numbers = list(range(len(rows)))
    frame = frame.assign(
        draws=5,
        statement="",
        id=[f"example-{n}" for n in numbers],
        run_at=0,
        context=0,
        ordinal=numbers,
        private=private,
    )
    return Examples(FLOWS, in_order(frame))


@given(ROWS)
def test_nothing_comes_before_what_is_severer(rows: list[tuple[object, ...]]) -> None:
    examples = gallery(rows).page()

    def severity(row: dict[str, object]) -> tuple[object, ...]:
        ranks = {facet: RANKS[facet].index(str(row[facet])) for facet in RANKS}
        share = int(str(row["claimed"])) / int(str(row["draws"]))
        rest = ranks[Facet.QUOTE], ranks[Facet.CERTAINTY], ranks[Facet.AGREEMENT]
        return ranks[Facet.STRENGTH], row["domain"] in (row["sphere"], "general"), -share, *rest

    dicts = examples.to_dict("records")
    keys = [severity(row) for row in dicts]
    assert keys == sorted(keys)
    assert sorted(row["id"] for row in dicts) == sorted(f"example-{n}" for n in range(len(rows)))
    for _, tie in groupby(dicts, severity):
        of_domain = Counter[str]()
        domains = [str(row["domain"]) for row in tie]
        left = Counter(domains)
        for domain in domains:
            # Nobody's turn comes again while another domain of this turn still has one.
            assert all(of_domain[domain] <= of_domain[other] for other, n in left.items() if n)
            of_domain[domain] += 1
            left[domain] -= 1


def test_what_is_equally_severe_takes_turns_over_domains_and_people() -> None:
    alike = [values[0] for values in NAMES.values()]
    at = {facet: position for position, facet in enumerate(NAMES)}
    rows = []
    for person in (7, 3, 9):
        for domain in ("health", "legal", "finance"):
            for _ in range(2):
                row = [*alike, 5]
                row[at[Facet.PROFILE]], row[at[Facet.DOMAIN]] = person, domain
                rows.append(tuple(row))
    shown = gallery(rows).page()
    for turn in range(6):
        part = shown.iloc[3 * turn : 3 * turn + 3]
        assert part["domain"].nunique() == part["profile"].nunique() == 3
    # In the order of the record, the first of equals is the first.
    assert (shown["id"].iloc[0], gallery(rows[:1]).page()["id"].tolist()) == ("example-6", ["example-0"])
    # What is to be kept from most recipients comes before what others may know.
    assert gallery(rows, [number / 20 for number in range(18)]).page()["id"].iloc[0] == "example-17"


@given(ROWS, st.data())
def test_filters_leave_and_count_what_a_search_by_hand_finds(
    rows: list[tuple[object, ...]], data: st.DataObject
) -> None:
    every = gallery(rows)
    wanted = {
        facet: data.draw(st.lists(st.sampled_from([*map(str, values), "nowhere"]), max_size=2), label=str(facet))
        for facet, values in NAMES.items()
    }
    result, dicts = every.left(wanted), every.page().to_dict("records")

    def fits(row: dict[str, object], but: Facet | None = None) -> bool:
        return all(not values or str(row[f]) in values for f, values in wanted.items() if f != but)

    assert every.page(wanted).index.tolist() == [n for n, row in enumerate(dicts) if fits(row)]
    assert result.number == sum(map(fits, dicts))
    for facet in Facet:
        for value, count in result.counts[facet].items():
            assert count == sum(str(row[facet]) == value and fits(row, facet) for row in dicts)
        assert sum(result.unfiltered[facet].values()) == len(rows)


@given(ROWS, st.lists(st.sampled_from(["domain", "recipient", "phrase"]), min_size=1, unique=True))
def test_patterns_are_counts_by_hand_of_what_filters_leave(rows: list[tuple[object, ...]], by: list[str]) -> None:
    every, wanted = gallery(rows), {WHERE: ["domain <> 'legal'", "claimed / draws > 0.3"]}
    left = [row for row in every.page().to_dict("records") if row["domain"] != "legal" and row["claimed"] >= 2]
    assert [row["id"] for row in left] == every.page(wanted)["id"].tolist()
    groups: dict[tuple[object, ...], list[dict[Hashable, Any]]] = {}
    for row in left:  # the severest first
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    table = grouped(every, wanted, by).frame
    assert table["number"].tolist() == sorted(map(len, groups.values()), reverse=True)
    for found in table.to_dict("records"):
        own = groups[tuple(found[name] for name in by)]
        assert (found["number"], found["first_id"]) == (len(own), own[0]["id"])
        assert found["people"] == len({row["profile"] for row in own})
        assert found["share"] == len(own) / len(left) and found["rate"] == sum(r["claimed"] for r in own) / (
            5 * len(own)
        )


@pytest.mark.parametrize(
    ("quote", "phrase"),
    [
        ("As you know, my rent is  $1,450!", "copied"),
        ("my RENT is $1,450.", "copied"),
        ("$1,450", "part"),
        ("rent is", "part"),
        ("a rent of $1,450", "reworded"),
        ("my parent is $1,450", "reworded"),  # whole words
        ("", "none"),
        ("…", "none"),
    ],
)
def test_how_a_quote_says_a_statement(quote: str, phrase: str) -> None:
    assert phrase_of("My rent is $1,450.", quote) == phrase


@given(*[st.lists(st.sampled_from(["a", "b", "the", "rent"]), max_size=12)] * 2)
def test_without_what_differs_two_messages_are_the_same(one: list[str], other: list[str]) -> None:
    texts = "  ".join(one), "\n".join(other)
    rest = []
    for text, stretches in zip(texts, differences(*texts), strict=True):
        assert stretches == sorted(stretches)
        for start, end in reversed(stretches):
            assert text[start:end].strip() == text[start:end] != ""
            text = text[:start] + text[end:]
        rest.append(text.split())
    assert rest[0] == rest[1]
    assert differences(texts[0], texts[0]) == ([], [])


def test_endless_messages_are_not_compared() -> None:
    assert differences("a b " * MOST_COMPARED, "c") == ([], [])


def test_steps_stay_inside_and_begin_at_the_first() -> None:
    ids = ["a", "b", "c"]
    assert [step(ids, at, 1) for at in (None, "gone", "a", "c")] == ["a", "a", "b", "c"]
    assert [step(ids, at, -1) for at in ("b", "a")] == ["a", "a"]
    assert step([], "a", 1) is None


def test_full_examples_are_the_leaks_that_count_and_severity_is_their_order(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, LABELS)
    flows, scope = ask(sqlite_store, add_run(sqlite_store, data.id, 5, REVEALS))
    examples = all_examples(flows, [scope]).page()
    assert list(zip(examples["key"], examples["reveals"], strict=True)) == [("fact_1", 5), ("fact_1", 2), ("fact_0", 1)]
    assert set(examples["certainty"]) == {"unanimous"} and set(examples["kind"]) == {"real"}
    person = records(sqlite_store, data.id)[0]
    where = {"dataset_id": data.id, "context": person.context_ids[1], "annotator": "Ada"}
    with sqlite_store.write() as connection:
        decisions.add(connection, attribute=person.attribute_ids[1], label=Label.INAPPROPRIATE, **where)
    scope = resolve_scope(sqlite_store, scope.run.id)
    examples = all_examples(flows, [scope]).page()
    assert examples["certainty"].tolist() == ["unanimous", "person", "unanimous"]
    pair, settled = (person.attribute_ids[1], person.context_ids[1]), {"source": decisions.ADJUDICATED, "cause": "slip"}
    new_decisions = [
        NewDecision(*pair, Label.INAPPROPRIATE, uid="settled", **settled),
        NewDecision(*pair, Label.NECESSARY, uid="other", **settled),
    ]
    with sqlite_store.write() as connection:
        decisions.add_all(connection, data.id, "Bruno", new_decisions)
        assert decisions.undo(connection, data.id, "Bruno", "other", "taken back")
    examples = all_examples(flows, [resolve_scope(sqlite_store, scope.run.id)]).page()
    assert examples["certainty"].tolist() == ["unanimous", "adjudicated", "unanimous"], "an undo brought it back"
    with sqlite_store.write() as connection:
        decisions.add(connection, attribute=person.attribute_ids[1], label=Label.NECESSARY, **where)
    assert len(all_examples(flows, [resolve_scope(sqlite_store, scope.run.id)]).page()) == 2


@pytest.mark.parametrize("judge", [None, "any", "majority", "all"])
@pytest.mark.parametrize("grounded", [False, True])
def test_whose_claims_count_is_as_in_the_metrics(sqlite_store: Store, judge: str | None, grounded: bool) -> None:
    world = judged_world(sqlite_store, seed=3)
    flows = Flows(sqlite_store)
    scope = resolve_scope(sqlite_store, world.run_id, judge_id=judge, grounded=grounded)
    examples = all_examples(flows, [scope]).page()
    full = examples[examples["strength"] == "full"]
    counted = cell_flows(flows, scope, {}, scope.run.samples)
    counted = counted[(counted["label"] == INAPPROPRIATE) & (counted["reveals"] > 0)]
    columns = ["attribute", "context", "reveals", "draws"]
    assert sorted(full[columns].to_numpy().tolist()) == sorted(counted[columns].to_numpy().tolist())
    assert len(full)
    assert judge is None or len(full) == len(examples)  # several judges together know full claims alone
    for row in examples.to_dict("records"):
        a, p = int(row["attribute"]), int(row["profile"])
        c = world.contexts.index(int(row["context"]))
        ours = [
            [world.claims[number].get(j, {}).get(a) for j in world.judges]
            for number, (q, d) in world.place.items()
            if d == c and a in world.attributes[q] and a in world.held[number]
        ]
        agreed = max(
            sum(x is not None and x[0] == "full" and (x[1] or not grounded) for x in claims) for claims in ours
        )
        assert row["agreement"] == ("all" if agreed == len(world.judges) else "some"), (p, a, c)
        if judge is None:
            claims = [x for first, *_ in ours if (x := first) is not None and x[0] == row["strength"]]
            assert row["claimed"] == sum(x[1] or not grounded for x in claims)
            assert (row["quote"] == "grounded") == any(x[1] for x in claims)
            assert (row["phrase"] == "none") == (row["quote"] == "ungrounded")
            strongest = [
                s for s in Strength if any(first and first[0] == s and (first[1] or not grounded) for first, *_ in ours)
            ]
            assert row["strength"] == strongest[0]


def test_several_runs_in_one_gallery_and_rows_that_say_where_they_come_from(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, LABELS)
    real = add_run(sqlite_store, data.id, 5, REVEALS)
    made_up = add_run(sqlite_store, data.id, 5, REVEALS, simulated=True)
    flows = Flows(sqlite_store)
    scopes = scopes_of(flows)
    assert {scope.run.id for scope in scopes} == {real, made_up}
    examples = all_examples(flows, scopes).page()
    assert all_examples(flows, scopes).left({Facet.KIND: ["simulated"]}).counts[Facet.RUN] == {made_up: 3, real: 0}
    rows = leak_rows(flows, {scope.run.id: scope for scope in scopes}, examples, {str(examples["id"].iloc[0]): "look"})
    assert [row.id for row in rows] == examples["id"].tolist()
    assert [bool(row.simulated) for row in rows] == (examples["kind"] == "simulated").tolist()
    assert rows[0].note == "look" and rows[0].sample == 1
    shown = with_excerpts(flows, {scope.run.id: scope for scope in scopes}, examples)
    assert shown["leaked"].iloc[0] == "All of it" and shown["sample"].iloc[0] == 1


def test_a_basket_shows_what_stands_now_and_says_what_is_gone(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, LABELS)
    flows, scope = ask(sqlite_store, add_run(sqlite_store, data.id, 5, REVEALS))
    person = records(sqlite_store, data.id)[0]
    leak = item_of(scope, person.id, person.context_ids[2], person.attribute_ids[1])
    conveyed = item_of(scope, person.id, person.context_ids[0], person.attribute_ids[2])
    first, second, third = basket_rows(flows, [leak, conveyed, Item(run="run-gone", profile=1, context=1, attribute=1)])
    assert first.row is not None and (first.row.claimed, first.row.draws) == (5, 5)
    assert second.row is None and "no longer a leak" in second.removal_reason
    assert third.row is None and "run-gone" in third.removal_reason
    with sqlite_store.write() as connection:
        runs.delete(connection, scope.run.id)
    assert basket_rows(flows, [leak])[0].row is None


def test_nothing_is_claimed_of_a_part_of_the_memory(sqlite_store: Store) -> None:
    """A careful model with a short memory: no leak is no error."""
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, LABELS)
    run_id = add_run(sqlite_store, data.id, 5, {})
    person = records(sqlite_store, data.id)[0]
    with sqlite_store.write() as connection:
        short = datasets.keep_memories(connection, person.id, person.attribute_ids[:1])
        connection.execute(sa.update(response).values(memory=short))
    flows, scope = ask(sqlite_store, run_id)
    assert all_examples(flows, [scope]).page().empty


def test_without_labels_or_runs_there_is_nothing(sqlite_store: Store, tmp_path: Path) -> None:
    assert run_ids(sqlite_store) == []
    assert all_examples(Flows(sqlite_store), []).page().empty
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    flows, scope = ask(sqlite_store, add_run(sqlite_store, data.id, 5, REVEALS))
    empty = all_examples(flows, [scope])
    assert empty.page().empty and empty.by_run().empty and empty.left({Facet.DOMAIN: ["health"]}).number == 0


def test_a_decision_moves_the_gallery_and_its_claims_are_not_read_again(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, LABELS)
    run_id = add_run(sqlite_store, data.id, 5, REVEALS)
    (record,) = records(sqlite_store, data.id)
    reads: list[str] = []
    real = gallery_module.judge_claims

    def counted(connection: sa.Connection, scope: Scope, profiles: list[int] | None = None) -> pd.DataFrame:
        reads.append(scope.run.id)
        return real(connection, scope, profiles)

    monkeypatch.setattr(gallery_module, "judge_claims", counted)
    flows = Flows(sqlite_store)

    def number() -> int:
        return all_examples(flows, [resolve_scope(sqlite_store, run_id)]).number

    before = number()
    with sqlite_store.write() as connection:
        pair = record.attribute_ids[0], record.context_ids[0]
        decisions.add_all(connection, data.id, "Ada", [NewDecision(*pair, Label.NECESSARY)])
    assert (number(), reads) == (before - 1, [run_id])
    with sqlite_store.write() as connection:
        work.bump(connection, run_id)
    assert (number(), reads) == (before - 1, [run_id, run_id]), "the run has moved"
