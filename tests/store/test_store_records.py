"""What is recorded stays what it was, on both engines: calls, human decisions, ballots, responses, judgements.

Each kind has one rule for what a second write may change; these tests are those rules.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from worlds import (
    PERSONAS,
    add_call,
    add_dataset,
    add_judge,
    add_labels,
    add_run,
    answer,
    plan_run,
    records,
    settle_judgement,
    settle_response,
)

from cimemories.flows import catalogue
from cimemories.flows.labels import NECESSARY
from cimemories.model import ChatRequest, JudgementStatus, Label, ResponseStatus, Reveal, Span, Strength, Verdict
from cimemories.store import calls, datasets, decisions, judgements, labellings, runs, tables, work
from cimemories.store.engine import Store, StoreError, canonical_json


def counts(store: Store) -> dict[str, int]:
    with store.read() as connection:
        return {
            t.name: connection.scalar(sa.select(sa.func.count()).select_from(t)) for t in (tables.call, tables.request)
        }


# --- calls ---

REQUEST = ChatRequest("model", (("system", "Be brief."), ("user", "Hello")), {"temperature": 0.7, "n_max": 1}, seed=3)


def record(store: Store, item: ChatRequest, *outcomes: calls.Answer, simulated: bool = False) -> dict[int, Any]:
    with store.write() as connection:
        return calls.record_all(connection, [calls.Exchange(item, outcomes, "respond", "http://x/v1", simulated)])[0]


def held(store: Store, item: ChatRequest, draws: list[int], *, simulated: bool = False) -> dict[int, calls.Answer]:
    with store.read() as connection:
        wanted = calls.Wanted(calls.canonical_body(item), draws, calls.Origin(simulated))
        return calls.look_up(connection, [wanted])[0].answers


TEXTS = st.text() | st.sampled_from(["", '"\\', "\0\u2028é😀", "\ud800", "null"])
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner))
NAMES = TEXTS.filter(lambda name: name not in ("model", "messages", "seed"))


@given(st.lists(st.tuples(TEXTS, TEXTS)), st.dictionaries(NAMES, VALUES), st.none() | st.integers())
def test_a_body_is_written_as_json_writes_it(
    messages: list[tuple[str, str]], parameters: dict[str, Any], seed: int | None
) -> None:
    """The keys of all recorded calls are made of it."""
    item = ChatRequest("m", tuple(messages), parameters, seed)
    body = calls.request_body(item)
    assert calls.canonical_body(item) == canonical_json(body)
    assert calls.body_json(body) == json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def test_an_answer_replaces_a_failure_and_nothing_replaces_an_answer(store: Store) -> None:
    key = calls.keys_of(REQUEST, [0], simulated=False)[0]
    failure = answer(key, exchange="e1", status="http 429", error="slow down", attempts=3)
    assert record(store, REQUEST, failure) == {0: failure}
    assert held(store, REQUEST, [0]) == {}
    later = answer(key, exchange="e2", status="timeout")
    assert record(store, REQUEST, later) == {0: later}
    first = answer(key, exchange="e3", prompt_tokens=7, reasoning="because", finish_reason="stop")
    assert record(store, REQUEST, first) == {0: first}
    assert held(store, REQUEST, [0]) == {0: replace(first, attempts=5)}
    for rival in (answer(key, exchange="e4", content="another text"), answer(key, exchange="e5", status="timeout")):
        assert record(store, REQUEST, rival)[0].content == first.content
        assert held(store, REQUEST, [0])[0].exchange == "e3"
    assert counts(store)["call"] == 1
    assert counts(store)["request"] == 1


def test_draws_of_one_exchange_are_kept_apart(store: Store) -> None:
    keys = calls.keys_of(REQUEST, [0, 1, 2], simulated=False)
    good = {d: answer(keys[d], draw=d, exchange="e1", content=f"text {d}") for d in (0, 2)}
    failed = answer(keys[1], draw=1, exchange="e1", status="cut off")
    assert record(store, REQUEST, good[0], failed, good[2]) == {0: good[0], 1: failed, 2: good[2]}
    assert held(store, REQUEST, [0, 1, 2, 3]) == good


def test_a_simulated_answer_never_serves_a_real_request(store: Store) -> None:
    key = calls.keys_of(REQUEST, [0], simulated=True)[0]
    record(store, REQUEST, answer(key), simulated=True)
    assert held(store, REQUEST, [0], simulated=False) == {}
    assert list(held(store, REQUEST, [0], simulated=True)) == [0]


def test_the_request_is_kept_as_it_was_sent(store: Store) -> None:
    item = replace(REQUEST, messages=(("user", 'Grüße 🏠\u2028 \\ "'),))
    record(store, item, answer(calls.keys_of(item, [0], simulated=False)[0]))
    with store.read() as connection:
        body = json.loads(connection.execute(sa.select(tables.request.c.body)).scalar_one())
    assert body == {
        **item.parameters,
        "model": "model",
        "messages": [{"role": "user", "content": item.messages[0][1]}],
        "seed": 3,
    }


LONG = st.builds(str.__mul__, TEXTS.filter(bool), st.just(calls.PASSAGE_LENGTH))
BREAKS = st.sampled_from(["\n", "\n\n", "\n\n\n", "\\n\\n", "\\\n\n"])


@given(st.lists(TEXTS | LONG | BREAKS))
def test_passages_make_up_the_body_that_they_were_taken_from(texts: list[str]) -> None:
    body = calls.canonical_body(replace(REQUEST, messages=(("user", "".join(texts)),)))
    rest, passages = calls._split(body)
    assert all(len(passage) >= calls.PASSAGE_LENGTH for passage in passages)
    first, *others = rest.split("\n")
    assert first + "".join(part for pair in zip(passages, others, strict=True) for part in pair) == body


def test_what_prompts_share_is_kept_once(store: Store) -> None:
    memories = "\n".join(f"- Memory \\n {i} \u2028" for i in range(100))
    texts = ["short", memories, f"Remember:\n\n{memories}\n\nOne.", f"Remember:\n\n{memories}\n\n{memories}\n\nTwo."]
    items = [replace(REQUEST, messages=(("system", memories), ("user", text))) for text in texts]
    for item in items:
        record(store, item, answer(calls.keys_of(item, [0], simulated=False)[0]))
    sent = {calls.text_hash(body): body for body in map(calls.canonical_body, items)}
    with store.write() as connection:
        assert calls.bodies(connection, sent) == sent
        assert {row["body"] for row in calls.answered(connection)} == set(sent.values())
        kept = connection.execute(sa.select(sa.func.sum(sa.func.length(tables.passage.c.text)))).scalar_one()
        assert kept < 4 * len(memories)
        # As it stood before there were passages.
        digest = next(iter(sent))
        own = sa.update(tables.request).where(tables.request.c.hash == digest)
        connection.execute(own.values(body=sent[digest], passages=None))
        assert calls.bodies(connection, sent) == sent


@pytest.mark.parametrize("bad", ["\0", "\ud83c"], ids=["nul", "half pair"])
def test_text_that_no_database_holds_does_not_stop_a_run(store: Store, bad: str) -> None:
    """A server can send both in valid JSON; an answer that could not be written would fail a run at each resume."""
    dataset = add_dataset(store, profiles=1, contexts=1)
    person = records(store, dataset.id)[0]
    key = calls.keys_of(REQUEST, [0], simulated=False)[0]
    outcome = record(store, REQUEST, answer(key, content=f"a{bad}b", reasoning=bad, error=bad))[0]
    assert (outcome.content, outcome.reasoning, outcome.error) == ("a\ufffdb", "\ufffd", "\ufffd")
    assert held(store, REQUEST, [0]) == {0: outcome}
    with store.write() as connection:
        run_id = plan_run(connection, dataset.id, 1)
        judge = judgements.of_run(connection, run_id)[0].id
        response = runs.owed(connection, run_id, person.id)[0].samples[0]
        settle_response(connection, response, key)
        reveals = [Reveal(person.attribute_ids[0], f"a{bad}b", Span(0, 3))]
        judgements.settle(connection, response, judge, status=JudgementStatus.OK, reveals=reveals)
    with store.read() as connection:
        (sample,) = judgements.judged_responses(connection, run_id, judge, person.id, person.context_ids[0])
    assert sample.reveals == (Reveal(person.attribute_ids[0], "a\ufffdb", Span(0, 3)),)


requests = st.builds(
    ChatRequest,
    model=st.sampled_from(["a", "b"]),
    messages=st.lists(st.tuples(st.sampled_from(["system", "user"]), st.text(max_size=4)), max_size=3).map(tuple),
    parameters=st.dictionaries(
        st.sampled_from(["top_p", "stop"]), st.sampled_from([0, 1, 0.5, "1", None, ["x"], {"y": 1}]), max_size=2
    ),
    seed=st.none() | st.integers(0, 2),
)


@given(requests, requests, st.integers(0, 2), st.integers(0, 2), st.booleans(), st.booleans())
def test_two_calls_share_a_key_only_if_nothing_differs(
    one: ChatRequest, other: ChatRequest, draw: int, other_draw: int, simulated: bool, other_simulated: bool
) -> None:
    same = (repr(one), draw, simulated) == (repr(other), other_draw, other_simulated)
    same = same or (_sent(one), draw, simulated) == (_sent(other), other_draw, other_simulated)
    keys = (
        calls.keys_of(one, [draw], simulated=simulated),
        calls.keys_of(other, [other_draw], simulated=other_simulated),
    )
    assert (keys[0][draw] == keys[1][other_draw]) == same


def _sent(item: ChatRequest) -> str:
    return repr([item.model, item.messages, sorted(item.parameters.items(), key=lambda p: p[0]), item.seed])


@given(st.text(min_size=1), st.data())
def test_one_changed_character_is_another_call(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    other = text[:at] + data.draw(st.characters().filter(lambda c: c != text[at])) + text[at + 1 :]
    one, two = (calls.keys_of(ChatRequest("m", (("user", t),)), [0], simulated=False)[0] for t in (text, other))
    assert one != two


# --- decisions ---


def test_decisions_supersede_undo_and_stand(store: Store) -> None:
    dataset = add_dataset(store, profiles=1)
    person = records(store, dataset.id)[0]
    pair, other = (person.attribute_ids[0], person.context_ids[0]), (person.attribute_ids[1], person.context_ids[0])

    def decide(who: str, label: Label | None, at: tuple[int, int] = pair) -> int:
        with store.write() as connection:
            return decisions.add(
                connection, dataset_id=dataset.id, attribute=at[0], context=at[1], annotator=who, label=label
            )

    def stands() -> dict[tuple[int, int], tuple[str, Label | None]]:
        with store.read() as connection:
            standing = decisions.standing(decisions.history(connection, dataset.id))
        return {at: (d.annotator, d.label) for at, d in standing.items()}

    assert stands() == {}
    first = decide("ann", Label.NECESSARY)
    decide("ann", Label.AMBIGUOUS, other)
    assert stands() == {pair: ("ann", Label.NECESSARY), other: ("ann", Label.AMBIGUOUS)}
    second = decide("ann", Label.INAPPROPRIATE)
    third = decide("bob", Label.AMBIGUOUS)
    assert stands()[pair] == ("bob", Label.AMBIGUOUS)
    undo = decide("bob", None)
    assert stands()[pair] == ("ann", Label.INAPPROPRIATE)
    assert decide("ann", None) > undo
    assert stands() == {other: ("ann", Label.AMBIGUOUS)}
    decide("bob", Label.NECESSARY)
    assert stands()[pair] == ("bob", Label.NECESSARY)
    with store.read() as connection:
        history = decisions.history(connection, dataset.id, [pair[0]], pair[1])
        revision = datasets.all_rows(connection)[0].revision
    by_id = {d.id: d.supersedes for d in history}
    assert (by_id[first], by_id[second], by_id[third], by_id[undo]) == (None, first, None, third)
    assert len(history) == 6
    assert revision == 7


# --- ballots, responses, judgements ---


def test_planning_ballots_again_changes_nothing_and_planning_more_adds(store: Store) -> None:
    dataset = add_dataset(store, profiles=2, contexts=3)
    labelling_id = add_labels(store, dataset.id, [[[NECESSARY] * 3] * 6] * 2, draws=2)
    people = records(store, dataset.id)

    def state() -> list[Any]:
        with store.read() as connection:
            return [tuple(row) for row in connection.execute(sa.select(tables.ballot).order_by(tables.ballot.c.id))]

    def plan(draws: int) -> None:
        with store.write() as connection:
            ids = labellings.personas_of(connection, "test", PERSONAS)
            contexts = list(people[0].context_ids)
            labellings.plan(connection, labelling_id, [p.id for p in people], contexts, ids, draws)

    before = state()
    assert len(before) == 2 * 3 * 3 * 2
    plan(2)
    assert state() == before
    plan(5)
    assert state()[: len(before)] == before
    with store.read() as connection:
        groups = labellings.owed(connection, labelling_id, people[1].id)
    assert len(groups) == 3 * 3
    assert all(sorted(group.ballots) == [2, 3, 4] for group in groups)
    ballot = groups[0].ballots[2]
    with store.write() as connection:
        key = add_call(connection, "x")
        labellings.settle(connection, [labellings.Settled(ballot, "failed", "timeout", key)])
        pair = (people[1].attribute_ids[0], Verdict.INAPPROPRIATE)
        labellings.settle(connection, [labellings.Settled(ballot, "ok", None, key, [pair])])
        labellings.settle(connection, [labellings.Settled(ballot, "ok", None, key, [pair])])
        labellings.settle(connection, [labellings.Settled(ballot, "unparsed", "late", key)])
    with store.read() as connection:
        votes = labellings.context_votes(connection, labelling_id, people[1].id, groups[0].context)
        assert work.failures(connection, labelling_id) == []
    assert votes[people[1].attribute_ids[0]][groups[0].persona][-1] == (2, Verdict.INAPPROPRIATE)


def test_a_settled_response_stays_and_only_a_failure_is_asked_again(store: Store) -> None:
    dataset = add_dataset(store, profiles=1, contexts=1)
    with store.write() as connection:
        run_id = plan_run(connection, dataset.id, 5)
        key = add_call(connection, "x")
        person = datasets.profile_ids(connection, dataset.id)[0]
        (group,) = runs.owed(connection, run_id, person)
        ends = ("ok", "empty", "refused", "truncated", "failed")
        for sample, status in enumerate(ends):
            assert settle_response(connection, group.samples[sample], key, status=ResponseStatus(status))
    with store.write() as connection:
        (left,) = runs.owed(connection, run_id, person)
        assert list(left.samples) == [4]
        other = add_call(connection, "y")
        again = [settle_response(connection, i, other, status=ResponseStatus.OK) for i in group.samples.values()]
        assert again == [False, False, False, False, True]
        context_ids = [row.id for row in datasets.contexts(connection, dataset.id)]
        runs.plan(connection, run_id, [person], context_ids, 5)
        assert runs.by_id(connection, run_id).responses == {"ok": 2, "empty": 1, "refused": 1, "truncated": 1}


def test_a_judgement_stays_unless_it_had_only_failed(store: Store) -> None:
    dataset = add_dataset(store, profiles=1, contexts=1)
    a, b = records(store, dataset.id)[0].attribute_ids[:2]
    with store.write() as connection:
        run_id = plan_run(connection, dataset.id, 2)
        judge = judgements.of_run(connection, run_id)[0].id
        key = add_call(connection, "x")
        person = datasets.profile_ids(connection, dataset.id)[0]
        (group,) = runs.owed(connection, run_id, person)
        first, second = group.samples.values()
        for response in (first, second):
            settle_response(connection, response, key)
        assert [item.response for item in judgements.owed(connection, run_id, judge, person)] == [first, second]
        settle_judgement(connection, first, judge, key, [], status=JudgementStatus.FAILED)
        settle_judgement(connection, second, judge, key, [], status=JudgementStatus.UNPARSED)
        assert [item.response for item in judgements.owed(connection, run_id, judge, person)] == [first]
        settle_judgement(connection, first, judge, key, [a])
        settle_judgement(connection, first, judge, key, [a, b])
        settle_judgement(connection, second, judge, key, [b])
        assert judgements.owed(connection, run_id, judge, person) == []
        assert judgements.reveal_counts(connection, run_id, [judge]).all() == [(a, group.context, None, 1)]
        assert judgements.judged_draws(connection, run_id, [judge]).scalar() is not None
        another = add_judge(connection, "second-judge")
        judgements.assign(connection, run_id, [another, judge])
        settle_judgement(connection, second, another, key, [b], strength=Strength.PARTIAL)
        assert [(j.name, j.ordinal) for j in judgements.of_run(connection, run_id)] == [
            ("test-judge", 0),
            ("second-judge", 1),
        ]
        assert judgements.reveal_counts(connection, run_id, [another]).all() == []
        assert runs.by_id(connection, run_id).judgements == {"ok": 1, "unparsed": 1}
        assert math.isclose(runs.by_id(connection, run_id).coverage or 0, 0.5)


@pytest.mark.parametrize(
    ("tags", "note", "message"),
    [
        (["two words"], None, "Write two-words"),
        (["a\u202eb"], None, "control characters or overrides"),
        (["x" * 41], None, "at most 40 characters"),
        ([str(n) for n in range(21)], None, "at most 20 tags, and these are 21"),
        (None, "x" * 2_001, "at most 2,000 characters, and this one 2,001"),
        (None, "\x1b[2J", "control characters or overrides"),
    ],
)
def test_tags_and_notes_that_cannot_be_shown_safely_are_refused(
    store: Store, tags: list[str] | None, note: str | None, message: str
) -> None:
    run_id = add_run(store, add_dataset(store, profiles=1).id, 1, {})
    catalogue.describe_run(store, run_id, ["kept", "kept", " "], "One line\r\nand another.")
    with pytest.raises(StoreError, match=message):
        catalogue.describe_run(store, run_id, tags, note)
    row = catalogue.run_of(store, run_id)
    assert (row.tags, row.note) == (("kept",), "One line\nand another.")
    catalogue.describe_run(store, run_id, note="")
    assert (catalogue.run_of(store, run_id).tags, catalogue.run_of(store, run_id).note) == (("kept",), "")
    with pytest.raises(StoreError, match="run-00000000"):
        catalogue.describe_run(store, "run-00000000", ["a"])


def test_tokens_are_counted_once_for_each_call(store: Store) -> None:
    dataset = add_dataset(store, profiles=2, contexts=2)
    run_id = add_run(store, dataset.id, 3, {})
    with store.read() as connection:
        parts = runs.calls_by_model(connection, [run_id])
    assert sum(part.prompt_tokens for part in parts) == 10
    assert sum(part.cached_tokens for part in parts) == 4
    assert sum(part.completion_tokens for part in parts) == 2


def test_plans_learn_from_the_same_calls_in_whatever_order_they_were_recorded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "TEXTS_AT_MOST", 3)
    monkeypatch.setattr(calls, "CALLS_AT_MOST", 3)
    dataset = add_dataset(store, profiles=1)
    with store.write() as connection:
        run_id = plan_run(connection, dataset.id, 1)
        lengths = {add_call(connection, "x" * 10 * n): 10 * n for n in range(1, 9)}
        for key in sorted(lengths, reverse=True):
            connection.execute(sa.insert(tables.run_call).values(run=run_id, call=key))
        named = sorted(lengths)[:3]
        measured = calls.characters_a_token(connection, [run_id], "test-model", False)
        assert measured == sum(lengths[key] for key in named) / 30
        learned = calls.learned(connection, [run_id, "run-0"], "respond", "test-model", False)
        assert learned == calls.Learned(3, 2.0, 0.5, len("text of exchange-1"))
        assert calls.learned(connection, ["run-0"], "respond", "test-model", False) is None
