"""Judges of one run beside each other, the task check, and what has to be said beside numbers."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
import sqlalchemy as sa
from judging_worlds import judged_world
from sklearn.metrics import cohen_kappa_score
from worlds import add_call, add_dataset, add_judge, add_labels, add_run, ask, records

from cimemories import seeds
from cimemories.agreement.judges import judges_agreement
from cimemories.answers.metrics import metrics
from cimemories.compare.leaderboard import run_lines
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.leaks.message import leak_view, samples
from cimemories.metrics.headline import headline
from cimemories.metrics.warnings import comparison_warnings, run_warnings, settings_table, task_checks, unread_warning
from cimemories.model import JudgementStatus, ResponseStatus, Reveal, Span
from cimemories.store import judgements, runs, tables, work
from cimemories.store.calls import PromptSize
from cimemories.store.engine import Store

N, X = NECESSARY, INAPPROPRIATE


def changed(store: Store, run_id: str, **values: object) -> None:
    with store.write() as connection:
        connection.execute(sa.update(tables.run).where(tables.run.c.id == run_id).values(**values))
        work.bump(connection, run_id)


def one_context(store: Store, samples: int = 10, model: str = "test-model") -> str:
    dataset = add_dataset(store, profiles=1, attributes=2, contexts=1)
    add_labels(store, dataset.id, [[[X], [N]]])
    run_id = add_run(store, dataset.id, samples, [[[1], [samples]]])
    changed(store, run_id, model=model)
    return run_id


@pytest.mark.parametrize("grounded", [False, True])
def test_agreement_is_that_of_every_place_written_out(store: Store, grounded: bool) -> None:
    world = judged_world(store, seed=5)
    agreement = judges_agreement(Flows(store), world.run_id, grounded=grounded)
    assert [j.title for j in agreement.judges] == ["judge 0", "judge 1", "judge 2"]
    assert len(agreement.pairs) == 3
    for pair, (one, two) in zip(agreement.pairs, combinations(world.judges, 2), strict=True):
        verdicts: list[tuple[bool, bool]] = []
        messages = 0
        for number, claims in world.claims.items():
            if one not in claims or two not in claims:
                continue
            messages += 1
            for attribute in world.held[number]:
                own = [claims[judge].get(attribute) for judge in (one, two)]
                full = [x is not None and x[0] == "full" and (x[1] or not grounded) for x in own]
                verdicts.append((full[0], full[1]))
        table = np.zeros((2, 2), int)
        for first, second in verdicts:
            table[int(first), int(second)] += 1
        assert (pair.messages, pair.places) == (messages, len(verdicts))
        assert np.array(pair.table).tolist() == table.tolist()
        first, second = zip(*verdicts, strict=True)
        assert pair.kappa.value == pytest.approx(cohen_kappa_score(first, second))
        assert pair.agreement.value == pytest.approx(np.trace(table) / len(verdicts))
        assert not pair.by_label  # no labels were asked for
    for judge, counts in zip(world.judges, agreement.judges, strict=True):
        full = [c for by_judge in world.claims.values() for c in by_judge.get(judge, {}).values() if c[0] == "full"]
        assert (counts.claims, counts.ungrounded) == (len(full), sum(not g for _, g in full))


def test_agreement_that_chance_explains_is_undefined_and_says_why(sqlite_store: Store) -> None:
    dataset = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    run_id = add_run(sqlite_store, dataset.id, 2, np.zeros((1, 2, 1)))
    person = records(sqlite_store, dataset.id)[0]
    with sqlite_store.write() as connection:
        second = judgements.judge_id(
            connection, kind="matcher", model="", endpoint="", simulated=False, prompt_hash=None, parameters={}
        )
        judgements.assign(connection, run_id, [second])
        for item in judgements.owed(connection, run_id, second, person.id):
            judgements.settle(connection, item.response, second, status=JudgementStatus.OK)
        work.bump(connection, run_id)
    [pair] = judges_agreement(Flows(sqlite_store), run_id).pairs
    assert (pair.agreement.value, pair.kappa.value, pair.ac1.value) == (1.0, None, 1.0)
    assert "all answers are the same" in pair.kappa.reason


def test_what_is_missing_adds_up_to_the_messages_that_are_not_judged(sqlite_store: Store) -> None:
    """Of 5 messages one is truncated; the first judge cannot read one, the second that one and another, and a check of
    the task fails on a third: what a reader sees as missing is that of the judges that count, each message once."""
    dataset = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    add_labels(sqlite_store, dataset.id, [[[X], [N]]])
    lost = {(0, 0, 0): ResponseStatus.TRUNCATED, (0, 0, 1): JudgementStatus.UNPARSED}
    run_id = add_run(sqlite_store, dataset.id, 5, [[[1], [3]]], missing=lost)
    unread = {"llm": {1, 2}, "check": {3}}
    with sqlite_store.write() as connection:
        profile = runs.profile_ids(connection, run_id)[0]
        for kind, samples_ in unread.items():
            reader = judgements.judge_id(
                connection, kind=kind, model="second", endpoint="x", simulated=False, prompt_hash=None, parameters={}
            )
            judgements.assign(connection, run_id, [reader])
            of_sample = dict(
                connection.execute(
                    sa.select(tables.response.c.id, tables.response.c.sample).where(tables.response.c.run == run_id)
                ).all()
            )
            for item in judgements.owed(connection, run_id, reader, profile):
                bad = of_sample[item.response] in samples_
                status = JudgementStatus.UNPARSED if bad else JudgementStatus.OK
                judgements.settle(connection, item.response, reader, status=status)
        work.bump(connection, run_id)
    for judge, judged, by_stage in (
        (None, 3, {"response": 1, "judgement": 1}),
        ("second", 2, {"response": 1, "judgement": 2}),
        ("all", 2, {"response": 1, "judgement": 2}),
    ):
        numbers = headline(Flows(sqlite_store), resolve_scope(sqlite_store, run_id, None, judge))
        counts: dict[str, int] = {}
        for stage, _, _, number in numbers.missing:
            counts[stage] = counts.get(stage, 0) + number
        assert (numbers.judged, counts) == (judged, by_stage), judge
        assert numbers.judged + sum(counts.values()) == 5


def test_a_message_that_does_not_do_its_task_does_not_shine(store: Store) -> None:
    run_id = one_context(store)
    with store.write() as connection:
        row = runs.by_id(connection, run_id)
        profile = runs.profile_ids(connection, run_id)[0]
        assert task_checks(connection, row) == ()
        checker = judgements.judge_id(
            connection, kind="check-rules", model="", endpoint="", simulated=False, prompt_hash=None, parameters={}
        )
        judgements.assign(connection, run_id, [checker])
        owed = judgements.owed(connection, run_id, checker, profile)
        for item, verdict in zip(owed, ["no", "partly", *["yes"] * 6, None], strict=False):
            status = JudgementStatus.OK if verdict else JudgementStatus.UNPARSED
            judgements.settle(connection, item.response, checker, status=status, verdict=verdict)
        work.bump(connection, run_id)
        [check] = task_checks(connection, runs.by_id(connection, run_id))
    assert (check.yes, check.partly, check.no, check.unchecked) == (6, 1, 1, 2)
    assert check.share == pytest.approx(7 / 8)
    flows, scope = ask(store, run_id)
    result = headline(flows, scope)
    assert any("1 of 8 messages do not do their task" in note for note in result.notes)
    assert metrics(flows, scope).as_json()["does_task"]["not_checked"] == 2
    # The checker is no judge of what is revealed.
    assert [judge.name for judge in scope.judges] == ["test-judge"]
    frame = flows.query(scope, "SELECT DISTINCT profile, context FROM {flow}")
    view = leak_view(flows, scope, int(frame["profile"][0]), int(frame["context"][0]))
    assert view is not None
    assert [s.task for s in view.samples][:2] == ["no", "partly"]
    # A model's check goes before that by rules wherever one is told, once it has checked a message.
    with store.write() as connection:
        model = judgements.judge_id(
            connection, kind="check", model="checker", endpoint="x", simulated=False, prompt_hash=None, parameters={}
        )
        judgements.assign(connection, run_id, [model])
    result = headline(*ask(store, run_id))
    assert result.does_task is not None and result.does_task.share == pytest.approx(7 / 8)
    with store.write() as connection:
        key = add_call(connection, "check")
        owed = judgements.owed(connection, run_id, model, profile)
        for item, verdict in zip(owed, ["yes", "yes", "no", "no"], strict=False):
            judgements.settle(connection, item.response, model, status=JudgementStatus.OK, call=key, verdict=verdict)
        work.bump(connection, run_id)
    flows, scope = ask(store, run_id)
    result = headline(flows, scope)
    assert result.does_task is not None and result.does_task.share == 0.5
    assert any("2 of 4 messages do not do their task (checked by checker" in note for note in result.notes)
    assert run_lines(flows, [scope.run])[0].does_task == 0.5
    with store.read() as connection:
        told = [item.task for item in samples(connection, scope, profile)]
    assert (told[0], told[2]) == ("yes", "no")


@pytest.mark.parametrize("grounded", [False, True])
def test_agreement_by_label_is_that_of_the_places_of_each_label(store: Store, grounded: bool) -> None:
    world = judged_world(store, seed=5)
    scope = resolve_scope(store, world.run_id)
    agreement = judges_agreement(Flows(store), world.run_id, grounded=grounded, labels=scope)
    names = {N: "necessary", X: "inappropriate", AMBIGUOUS: "ambiguous"}
    for pair, (one, two) in zip(agreement.pairs, combinations(world.judges, 2), strict=True):
        verdicts: dict[str, list[tuple[bool, bool]]] = {}
        for number, claims in world.claims.items():
            if one not in claims or two not in claims:
                continue
            p, c = world.place[number]
            for a, attribute in enumerate(world.attributes[p]):
                if attribute in world.held[number]:
                    own = [claims[judge].get(attribute) for judge in (one, two)]
                    full = [x is not None and x[0] == "full" and (x[1] or not grounded) for x in own]
                    verdicts.setdefault(names[int(world.labels[p, a, c])], []).append((full[0], full[1]))
        assert {str(label): part.places for label, part in pair.by_label.items()} == {
            label: len(both) for label, both in verdicts.items()
        }
        for label, part in pair.by_label.items():
            first, second = zip(*verdicts[label], strict=True)
            assert part.kappa.value == pytest.approx(cohen_kappa_score(first, second)), label
        assert np.sum([part.table for part in pair.by_label.values()], axis=0).tolist() == np.array(pair.table).tolist()


def test_pooled_agreement_can_hide_what_is_inappropriate(sqlite_store: Store) -> None:
    """Two judges who agree on nine necessary attributes and on nothing inappropriate."""
    dataset = add_dataset(sqlite_store, profiles=1, attributes=10, contexts=1)
    add_labels(sqlite_store, dataset.id, [[[X]] + [[N]] * 9])
    run_id = add_run(sqlite_store, dataset.id, 4, [[[4]] + [[2]] * 9])
    with sqlite_store.write() as connection:
        second = add_judge(connection, "second")
        judgements.assign(connection, run_id, [second])
        first = judgements.of_run(connection, run_id)[0].id
        profile = runs.profile_ids(connection, run_id)[0]
        ids = records(sqlite_store, dataset.id)[0].attribute_ids
        for item in judgements.owed(connection, run_id, second, profile):
            claimed = judgements.claims(connection, first, [item.response])[item.response]
            reveals = [Reveal(a, "All of it", Span(0, 9)) for a in claimed if a != ids[0]]
            judgements.settle(connection, item.response, second, status=JudgementStatus.OK, reveals=reveals)
        work.bump(connection, run_id)
    flows = Flows(sqlite_store)
    [pair] = judges_agreement(flows, run_id, labels=resolve_scope(sqlite_store, run_id)).pairs
    assert pair.kappa.value is not None and pair.kappa.value > 0.75
    assert {str(label): part.kappa.value for label, part in pair.by_label.items()} == {
        "inappropriate": 0.0,
        "necessary": 1.0,
    }


def judge_of(store: Store, run_id: str, **values: object) -> None:
    with store.write() as connection:
        own = judgements.of_run(connection, run_id)[0].id
        connection.execute(sa.update(tables.judge).where(tables.judge.c.id == own).values(**values))
        work.bump(connection, run_id)


def test_what_speaks_against_a_run_is_said(sqlite_store: Store) -> None:
    run_id = one_context(sqlite_store, model="Qwen/Qwen3-8B")
    assert run_warnings(sqlite_store, run_id) == ()
    judge_of(sqlite_store, run_id, model="qwen3-32b", prompt_hash="f" * 64)
    family_warning, wording = run_warnings(sqlite_store, run_id)
    assert "same family" in family_warning and "Qwen by Alibaba" in family_warning
    assert "ffffffff" in wording
    assert set(run_warnings(sqlite_store, run_id)) <= set(headline(*ask(sqlite_store, run_id)).notes)
    judge_of(sqlite_store, run_id, model="Qwen/Qwen3-8B", prompt_hash=seeds.load_prompt("judge").sha256)
    [itself] = run_warnings(sqlite_store, run_id)
    assert "model under test itself" in itself
    judge_of(sqlite_store, run_id, model="deepseek-r1")
    changed(sqlite_store, run_id, manifest=json.dumps({"asked": {"thinking": "on"}}))
    [hidden] = run_warnings(sqlite_store, run_id)
    assert "10 of 10 messages came without a reasoning text" in hidden


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        # All counts alike although the prompts differ, as where the context is cut at 2,050 tokens.
        ([PromptSize(28_000 + 20 * n, 2_050) for n in range(10)], "about 2,050 tokens of 7,000 in a message's prompt"),
        # Cut at different places, each far below what was sent.
        ([PromptSize(28_400, 2_000 + n) for n in range(3)], "about 2,001 tokens of 7,100"),
        ([PromptSize(28_000 + 20 * n, 6_900 + 5 * n) for n in range(10)], None),
        ([PromptSize(28_000 + 2 * n, 6_900) for n in range(10)], None),  # contexts of nearly the same length
        ([PromptSize(900, 50)] * 9, None),  # short prompts fit everywhere
        ([], None),
    ],
)
def test_prompts_that_a_server_cut_in_silence_are_told(sizes: list[PromptSize], said: str | None) -> None:
    warning = unread_warning("respond", "m", sizes)
    assert warning is None if said is None else (said in str(warning) and "cannot leak" in str(warning))


def test_claims_that_could_not_be_used_are_counted(sqlite_store: Store) -> None:
    run_id = one_context(sqlite_store)
    with sqlite_store.read() as connection:
        dataset = runs.by_id(connection, run_id).dataset
    other = add_run(sqlite_store, dataset, 10, [[[1], [10]]])
    with sqlite_store.write() as connection:
        of_run = sa.select(tables.response.c.id).where(tables.response.c.run == run_id).limit(2)
        own = tables.judgement.c.response.in_(of_run)
        connection.execute(sa.update(tables.judgement).where(own).values(unknown=3))
        work.bump(connection, run_id)
    [dropped] = run_warnings(sqlite_store, run_id)
    assert dropped.startswith("6 claims of the judge test-judge about 2 messages could not be used")
    assert dropped in headline(*ask(sqlite_store, run_id)).notes
    assert run_warnings(sqlite_store, other) == ()


def test_judges_that_disagree_are_named_with_their_kappa(sqlite_store: Store) -> None:
    world = judged_world(sqlite_store, seed=6)
    pairs = judges_agreement(Flows(sqlite_store), world.run_id).pairs
    [warning] = [text for text in run_warnings(sqlite_store, world.run_id) if "disagree" in text]
    first = [pair for pair in pairs if pair.first.title == "judge 0"]
    assert (
        warning.count(" and judge") == len(first) == 2
    )  # their claims are drawn independently; the third is not asked
    assert all(f"{round(pair.kappa.value or 0.0, 2) + 0.0:.2f}" in warning for pair in first)
    assert any("only" in text for text in run_warnings(sqlite_store, world.run_id))  # coverage


def test_runs_that_differ_in_more_than_their_model_are_told_apart(sqlite_store: Store) -> None:
    dataset = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    one, two = (add_run(sqlite_store, dataset.id, 2, {}) for _ in range(2))
    assert comparison_warnings(sqlite_store, [one, two]) == ()
    manifest = {"parameters": {"max_tokens": 5, "temperature": 0.7}, "memory": {"order": "shuffled"}}
    changed(sqlite_store, two, manifest=json.dumps(manifest), composition="necessary+5", dataset_hash="e" * 64)
    warnings = comparison_warnings(sqlite_store, [one, two])
    assert len(warnings) == 4
    for text in ("not sent", "0.7", "necessary+5, order shuffled", "eeeeeeee"):
        [warning] = [item for item in warnings if text in item and ("parameter t" in item or text != "not sent")]
        assert "(test-model, full)" in warning and "(test-model, necessary+5)" in warning
    scopes = [resolve_scope(sqlite_store, run) for run in (one, two, one)]
    table = settings_table(sqlite_store, scopes, {one: "A", two: "B"}, {"what they cover": ("3", "4", "3")})
    assert table.titles == ["Setting", "2 runs", "B"]  # runs that are alike share a column, the most first
    assert table.texts()[-1] == ["What they cover", "3", "4"] and len(table.texts()) == 5
    counted = comparison_warnings(sqlite_store, [one, resolve_scope(sqlite_store, one, grounded=True)])
    assert len(counted) == 1 and "grounded ones" in counted[0]


def test_a_judge_of_the_reasoning_is_kept_apart(sqlite_store: Store) -> None:
    run_id = one_context(sqlite_store, samples=2)
    with sqlite_store.write() as connection:
        connection.execute(sa.update(tables.response).values(reasoning="I must not say All of it."))
        reader = judgements.judge_id(
            connection,
            kind="matcher",
            model="matcher",
            endpoint="",
            simulated=False,
            prompt_hash=None,
            parameters={},
            channel="reasoning",
        )
        judgements.assign(connection, run_id, [reader])
        profile = runs.profile_ids(connection, run_id)[0]
        for item in judgements.owed(connection, run_id, reader, profile):
            assert item.text == "I must not say All of it."
            judgements.settle(connection, item.response, reader, status=JudgementStatus.OK)
        work.bump(connection, run_id)
    flows = Flows(sqlite_store)
    for way in ("any", "majority", "all"):
        assert [judge.name for judge in resolve_scope(sqlite_store, run_id, judge_id=way).judges] == ["test-judge"]
    assert judges_agreement(flows, run_id).pairs == ()
    scope = resolve_scope(sqlite_store, run_id, judge_id="matcher on reasoning")
    result = headline(flows, scope)
    assert (result.violation[2], headline(flows, resolve_scope(sqlite_store, run_id)).violation[2]) == (0.0, 1.0)
    assert any("numbers of the reasoning" in note for note in result.notes)
    frame = flows.query(scope, "SELECT DISTINCT profile, context FROM {flow}")
    view = leak_view(flows, scope, int(frame["profile"][0]), int(frame["context"][0]))
    assert view is not None and {s.text for s in view.samples} == {"I must not say All of it."}
