"""Votes and verdicts as they are read from answers, and labellings as they grow: nothing unreadable becomes a vote, and
nothing is asked twice."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from evaluating import add, ballots, cli_inside, outside, small_profiles
from hostile import IncomingRequest, Reply, completion, error, hostile_server
from hypothesis import given
from hypothesis import strategies as st
from vote_strategies import write_ballot

from cimemories.curation import execution, labelling
from cimemories.curation.labelling import Ballot, read_ballot
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation.judging import read_judgement, read_keys
from cimemories.evaluation.prices import Prices
from cimemories.llm.replies import AnswerError
from cimemories.model import Span, Strength, Verdict, WorkStatus
from cimemories.seeds import load_personas
from cimemories.store import labellings, tables, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import ballot, vote

N, X, A, C = Verdict.NECESSARY, Verdict.INAPPROPRIATE, Verdict.ABSTAIN, Verdict.CONFLICT
CONTEXTS, PERSONAS = 3, len(load_personas().personas)


def votes(necessary: object, inappropriate: object) -> str:
    return json.dumps({"necessary": necessary, "inappropriate": inappropriate})


# ---- reading a ballot


@pytest.mark.parametrize(
    ("text", "verdicts", "conflicts", "unknown"),
    [
        (votes([1], [3]), (N, A, X), 0, 0),
        (votes([], []), (A, A, A), 0, 0),
        (votes([1, 2], [2, 3]), (N, C, X), 1, 0),
        (votes([1, 1, 1], [3, 3]), (N, A, X), 0, 0),
        (votes([2, 2], [2]), (A, C, A), 1, 0),
        (votes(["1", " 2 "], ["3"]), (N, N, X), 0, 0),
        (votes([1.0], [2.5]), (N, A, A), 0, 1),
        (votes([True, False], []), (A, A, A), 0, 2),
        (votes([0, -1, 4], [10**30]), (A, A, A), 0, 4),
        (votes(["1.", "one", "", "-1", "1e0"], []), (A, A, A), 0, 5),
        (votes([None, [1], {"n": 1}], []), (A, A, A), 0, 3),
        (f"```json\n{votes([1], [2])}\n```", (N, X, A), 0, 0),
        (f"```\n{votes([1], [2])}\n```\n", (N, X, A), 0, 0),
        (f"\n  {votes([1], [2])}  \n", (N, X, A), 0, 0),
        (json.dumps({"necessary": [1], "inappropriate": [], "why": "so"}), (N, A, A), 0, 0),
        (votes(["1-3"], []), (N, N, N), 0, 0),
        (votes([" 2 - 3 "], ["1–1"]), (X, N, N), 0, 0),
        (votes(["1-2"], ["2-3"]), (N, C, X), 1, 0),
        (votes(["3-1", "-3", "1-2-3", "1-", "a-b", "1.0-2"], []), (A, A, A), 0, 6),
        (votes(["2-9"], ["0-1"]), (X, N, N), 0, 2),
        (votes(["1-999999999", "7-9"], []), (N, N, N), 0, 2),
    ],
)
def test_a_ballot_says_what_its_lists_say(text: str, verdicts: tuple, conflicts: int, unknown: int) -> None:
    parsed = read_ballot(text, 3)
    assert (parsed.verdicts, parsed.conflicts, parsed.unknown) == (verdicts, conflicts, unknown)


@given(st.lists(st.sampled_from(Verdict), max_size=60))
def test_what_is_written_down_is_read_back(verdicts: list[Verdict]) -> None:
    parsed = read_ballot(write_ballot(verdicts), len(verdicts))
    assert parsed == Ballot(tuple(verdicts), verdicts.count(C), 0)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.from_regex(r"\d{1,3}-\d{1,3}"),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(anything, max_size=8), st.lists(anything, max_size=8), st.integers(0, 50))
def test_every_entry_is_a_vote_or_is_counted_as_unknown(left: list[object], right: list[object], size: int) -> None:
    """Whatever an answer lists, what is not named by it abstains, and an entry that names nothing is not lost."""
    parsed = read_ballot(votes(left, right), size)
    assert len(parsed.verdicts) == size
    assert parsed.conflicts == parsed.verdicts.count(C)
    assert 0 <= parsed.unknown <= len(left) + len(right)
    if parsed.unknown == 0 and left:
        assert {N, C} & set(parsed.verdicts)
    if parsed.unknown == 0 and right:
        assert {X, C} & set(parsed.verdicts)
    if not left and not right:
        assert set(parsed.verdicts) <= {A}


UNREADABLE = [
    None,
    "",
    "   ",
    "I would say that 1 and 2 are necessary.",
    "Here it is: " + votes([1], [2]),
    votes([1], [2])[:-1],
    votes([1], [2])[:20],
    "```json\n" + votes([1], [2])[:-3] + "\n```",
    "[1, 2]",
    "3",
    "null",
    '"necessary"',
    "NaN",
    json.dumps({"necessary": [1]}),
    json.dumps({"inappropriate": [1]}),
    votes("1, 2", []),
    votes([], None),
    votes({"1": True}, []),
    votes(1, 2),
    '{"necessary": ' + "[" * 100_000,
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_is_no_ballot_raises(text: str | None) -> None:
    with pytest.raises(AnswerError) as caught:
        read_ballot(text, 3)
    assert 0 < len(str(caught.value)) < 300


# ---- reading a judgement


MESSAGE = "Dear bank, my rent is $900 and I have two cats."


def claim(number: object, strength: object = "full", quote: object = "my rent is $900") -> dict[str, object]:
    return {"attribute": number, "strength": strength, "quote": quote}


def revealed(*claims: object) -> str:
    return json.dumps({"revealed": claims})


@pytest.mark.parametrize(
    ("claims", "expected", "unknown"),
    [
        ((), [], 0),
        ((claim(2),), [(1, "full")], 0),
        ((claim("2"),), [(1, "full")], 0),
        ((claim(2, "partial"), claim(2, "implied"), claim(2)), [(1, "full")], 0),
        ((claim(2), claim(2, "implied")), [(1, "full")], 0),
        ((claim(3), claim(1, "implied")), [(0, "implied"), (2, "full")], 0),
        ((claim(1, "Full"), claim(2, "PARTIAL")), [(0, "full"), (1, "partial")], 0),
        ((claim(2), claim(0), claim(4), claim(-1), claim(True), claim(None), claim("two")), [(1, "full")], 6),
        ((claim(1, "FULL"), claim(1, "fully"), claim(1, None), claim(1, "")), [(0, "full")], 3),
        ((claim(2), claim(1, "full", None), claim(1, "full", 5)), [(1, "full")], 2),
        ((claim(2), "1", 1, None, [1], {}), [(1, "full")], 5),
        ((claim(2), claim(1, []), claim(1, {})), [(1, "full")], 2),
    ],
    ids=str,
)
def test_a_judgement_says_what_its_list_says(claims: tuple, expected: list, unknown: int) -> None:
    judged = read_judgement(revealed(*claims), MESSAGE, 3)
    assert [(r.attribute, str(r.strength)) for r in judged.reveals] == expected
    assert judged.unknown == unknown


def test_quotes_are_looked_up_in_the_message() -> None:
    judged = read_judgement(revealed(claim(1), claim(2, quote="I owe the bank money"), claim(3, quote="")), MESSAGE, 3)
    there, invented, empty = judged.reveals
    assert there.span == Span(11, 26)
    assert MESSAGE[there.span.start : there.span.end] == there.quote
    assert not invented.grounded
    assert not empty.grounded
    assert invented.strength == Strength.FULL, "kept as the claim that it is"


@pytest.mark.parametrize(
    "text",
    [
        *UNREADABLE,
        votes([], []),
        json.dumps({"revealed": "none"}),
        json.dumps({"revealed": None}),
        # Entries of which none can be used: not "nothing is revealed".
        revealed(claim(4)),
        revealed(claim(1, "complete"), claim(2, None)),
        revealed(claim(1, "full", None), claim(2, "full", 5)),
        revealed(1, 2),
    ],
)
def test_what_is_no_judgement_raises(text: str | None) -> None:
    with pytest.raises(AnswerError):
        read_judgement(text, MESSAGE, 3)


@pytest.mark.parametrize(
    ("answer", "expected", "unknown"),
    [
        ({}, [], 0),
        ({"rent": "my rent is $900"}, [(1, "my rent is $900")], 0),
        ({"rent": ["my rent is $900", "two cats"], "cats": [], "name": None}, [(1, "my rent is $900")], 0),
        ({"rent": ["", None, "my rent is $900"]}, [(1, "my rent is $900")], 0),
        ({"rent": " ", "cats": None}, [], 0),
        ({"rent": "my rent is $900", "other": "two cats", "more": {"a": 1}}, [(1, "my rent is $900")], 2),
        ({"rent": None, "other": "two cats"}, [], 1),
        ({"other": None}, [], 0),
    ],
    ids=str,
)
def test_an_object_of_keys_says_what_it_states(answer: dict, expected: list, unknown: int) -> None:
    judged = read_keys(json.dumps(answer), MESSAGE, ["cats", "rent", "name"])
    assert [(item.attribute, item.quote) for item in judged.reveals] == expected
    assert all(item.grounded for item in judged.reveals)
    assert judged.unknown == unknown


@pytest.mark.parametrize(
    "answer",
    [
        {"rent": True},
        {"rent": {"sentence": "my rent is $900"}},
        {"rent": [900]},
        {"rent": "my rent is $900", "cats": 2},
        {"Rent": "my rent is $900"},
        {"revealed": {"rent": "my rent is $900"}},
    ],
    ids=str,
)
def test_an_object_of_keys_that_cannot_be_used_is_no_judgement(answer: dict) -> None:
    with pytest.raises(AnswerError):
        read_keys(json.dumps(answer), MESSAGE, ["cats", "rent", "name"])


# ---- labellings


def spec(url: str, **changes: object) -> LabellingSpec:
    return LabellingSpec(**{"dataset": "small", "model": "m", "base_url": url, "draws": 2, "seed": 0, **changes})


def whole(store: Store, labelling_id: str) -> tuple[object, ...]:
    """The row of a labelling and all of its ballots."""
    with store.read() as connection:
        row = connection.execute(sa.select(tables.labelling).where(tables.labelling.c.id == labelling_id)).one()
        query = sa.select(ballot).where(ballot.c.labelling == labelling_id).order_by(ballot.c.id)
        return row, connection.execute(query).all()


def test_a_labelling_that_is_running_is_not_changed_by_one_that_is_refused(store: Store) -> None:
    add(store, small_profiles(contexts=2))
    wanted = spec("simulator", model="sim-labeler", draws=1, contexts=1)
    labelling_id = labelling.plan(store, wanted)
    more = {"draws": 3, "contexts": 2, "timeout": 7.0}
    with store.write() as connection:
        claim = work.claim(connection, labelling_id)
    before = whole(store, labelling_id)
    with pytest.raises(StoreError, match=f"{labelling_id} is running.*nothing was changed"):
        labelling.plan(store, wanted.replace(**more))
    assert whole(store, labelling_id) == before
    with store.write() as connection:
        claim.hold(connection)
        work.finish(connection, labelling_id, WorkStatus.PAUSED)
    assert labelling.plan(store, wanted.replace(**more)) == labelling_id
    assert len(whole(store, labelling_id)[1]) == 6 * len(before[1])


KEYS = {"OPENAI_API_KEY": "the-old-key-1234", "LAB_API_KEY": "the-right-key-1234"}


def test_a_labelling_takes_the_key_and_the_timeout_that_it_is_given_again(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=2))

    def answers(request: IncomingRequest) -> Reply:
        right = request.authorization == f"Bearer {KEYS['LAB_API_KEY']}"
        return completion(*[votes([1], [2])] * request.n) if right else error(401, "the key is wrong")

    with hostile_server(answers, ("m",)) as server:
        command = ("label", "-d", "small", "-m", "m", "--base-url", server.url, "--draws", 1, "--contexts", 1)
        place = ("--workspace", sqlite_store.workspace)
        refused = cli_inside({**outside(), **KEYS}, *command, *place)
        assert refused.returncode == 1 and "the key is wrong" in refused.stderr
        other = ("--api-key-env", "LAB_API_KEY", "--timeout", 777)
        done = cli_inside({**outside(), **KEYS}, *command, *other, *place)
    assert (done.returncode, done.stdout) == (0, refused.stdout), done.stderr
    with sqlite_store.read() as connection:
        [row] = labellings.all_rows(connection)
    assert (row.manifest["timeout"], row.manifest["asked"]["timeout"]) == (777, 777)


def test_settings_that_cannot_be_are_refused_when_they_are_given() -> None:
    given = {"dataset": "small", "model": "m", "base_url": "http://x/v1"}
    for wrong, message in [
        ({"draws": 0}, "--draws must be 1 or more, not 0"),
        ({"max_tokens": "none"}, "`server` to leave the limit"),
        ({"prices": "cheap"}, "--price: prices are PROMPT/CACHED/COMPLETION"),
        ({"cap": 5.0}, "a cap needs the prices"),
        ({"votes": 3}, "there is no setting 'votes'"),
    ]:
        with pytest.raises(StoreError, match=message):
            LabellingSpec(**{**given, **wrong})
    assert LabellingSpec(**given, max_tokens="server", prices="2/6 EUR").replace(draws=3).prices == Prices(
        2, 2, 6, "EUR"
    )


def test_a_record_has_the_same_settings_as_before_they_were_a_model(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=1))
    wanted = spec("simulator", model="sim-labeler", prices="2/0.5/8 EUR", cap=3.0)
    labelling.plan(sqlite_store, wanted)
    with sqlite_store.read() as connection:
        [row] = labellings.all_rows(connection)
    prices = {"prompt": 2.0, "cached": 0.5, "completion": 8.0, "currency": "EUR"}
    asked = {"dataset": "small", "model": "sim-labeler", "base_url": "simulator", "draws": 2, "profiles": None}
    asked |= {"contexts": None, "api_key_env": "OPENAI_API_KEY", "temperature": None, "max_tokens": 2048, "seed": 0}
    assert row.manifest["asked"] == asked | {"timeout": 120.0, "personas": "westin", "prices": prices, "cap": 3.0}
    assert LabellingSpec.recorded(row.manifest["asked"]) == wanted


def label(store: Store, wanted: LabellingSpec) -> str:
    labelling_id = labelling.plan(store, wanted)
    execution.execute(store, labelling_id)
    return labelling_id


def verdicts_of(store: Store, status: str) -> list[str]:
    with store.read() as connection:
        query = sa.select(vote.c.verdict).join(ballot, vote.c.ballot == ballot.c.id).where(ballot.c.status == status)
        return list(connection.execute(query).scalars())


@pytest.mark.parametrize(
    ("text", "reason", "status"),
    [
        ("I cannot say.", "stop", "unparsed"),
        ("", "stop", "unparsed"),
        (votes([1], [2])[:-2], "stop", "unparsed"),
        (votes([1], [2])[:-2], "length", "truncated"),
        (votes([1], [2]), "length", "truncated"),
    ],
)
def test_unreadable_ballots_are_counted_and_never_abstain(store: Store, text: str, reason: str, status: str) -> None:
    """One persona answers badly: its ballots are missing, and the tallies hold no vote of it, abstentions included."""
    add(store, small_profiles(contexts=CONTEXTS))
    description = load_personas().personas[0].description.strip()[:60]

    def one_fails(request: IncomingRequest) -> Reply:
        if description in request.body["messages"][0]["content"]:
            return completion(*[text] * request.n, finish_reason=reason)
        return completion(*[votes([1], [2])] * request.n)

    with hostile_server(one_fails) as server:
        labelling_id = label(store, spec(server.url))
        made = len(server.chats)
        execution.execute(store, labelling_id)
    assert len(server.chats) == made, "the same draw would give the same text: it is not asked for again"
    bad, good = CONTEXTS * 2, CONTEXTS * 2 * (PERSONAS - 1)
    assert ballots(store, labelling_id) == {"ok": good, status: bad}
    assert verdicts_of(store, status) == []
    counted = verdicts_of(store, "ok")
    assert {v: counted.count(v) for v in ("necessary", "inappropriate")} == {"necessary": good, "inappropriate": good}
    with store.read() as connection:
        tallies = labellings.tallies(connection, labelling_id).all()
        failures = work.failures(connection, labelling_id)
        personas = labellings.personas(connection, labelling_id)
    assert tallies
    assert {personas[row.persona].key for row in tallies} == {p.key for p in load_personas().personas[1:]}
    assert {row.necessary + row.inappropriate + row.abstain + row.conflict for row in tallies} == {2}
    assert [(row[0], row[2]) for row in failures] == [(status, bad)]
    assert failures[0][1], "with a cause"


def test_failed_ballots_are_asked_for_again_by_a_resume(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    description = load_personas().personas[0].description.strip()[:60]
    broken = True

    def answering(request: IncomingRequest) -> Reply:
        if broken and description in request.body["messages"][0]["content"]:
            return Reply(body=b"{")
        return completion(*[votes([1], [])] * request.n)

    with hostile_server(answering) as server:
        labelling_id = label(sqlite_store, spec(server.url))
        before = ballots(sqlite_store, labelling_id)
        broken = False
        made = len(server.chats)
        progress = execution.execute(sqlite_store, labelling_id)
    assert before == {"ok": CONTEXTS * (PERSONAS - 1) * 2, "failed": CONTEXTS * 2}
    assert progress.fresh == before["failed"] == sum(chat.n for chat in server.chats[made:])
    assert ballots(sqlite_store, labelling_id) == {"ok": CONTEXTS * PERSONAS * 2}


def test_conflicts_and_unknown_numbers_are_kept_as_what_they_are(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=1))
    with hostile_server(lambda request: completion(*[votes([1, 2, 999], [2, "x"])] * request.n)) as server:
        labelling_id = label(sqlite_store, spec(server.url, draws=1))
    with sqlite_store.read() as connection:
        rows = connection.execute(sa.select(ballot.c.conflicts, ballot.c.unknown)).all()
        tally = labellings.tallies(connection, labelling_id).all()
    assert rows == [(1, 2)] * PERSONAS
    assert sum(row.conflict for row in tally) == PERSONAS
    assert sum(row.necessary for row in tally) == PERSONAS
    assert sum(row.inappropriate for row in tally) == 0


def test_more_draws_ask_only_for_the_new_ones(store: Store) -> None:
    add(store, small_profiles(contexts=CONTEXTS))

    def by_seed(request: IncomingRequest) -> Reply:
        return completion(*(votes([1], [request.seed + 2 + i]) for i in range(request.n)))

    with hostile_server(by_seed) as server:
        first = label(store, spec(server.url))
        kept = sorted(verdicts_of(store, "ok"))
        made = len(server.chats)
        second = label(store, spec(server.url, draws=4))
        assert first == second, "the same labelling, extended"
        assert server.seeds()[made:] == [(2, 2)] * CONTEXTS * PERSONAS
        assert len(verdicts_of(store, "ok")) == 2 * len(kept)
        made = len(server.chats)
        label(store, spec(server.url, draws=3))
        assert len(server.chats) == made, "fewer draws are there already"
    assert ballots(store, first) == {"ok": CONTEXTS * PERSONAS * 4}


def test_more_contexts_ask_only_for_the_new_ones_and_other_settings_are_another_labelling(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(contexts=CONTEXTS))
    with hostile_server(lambda request: completion(*[votes([1], [2])] * request.n), ("m", "m2")) as server:
        first = label(sqlite_store, spec(server.url, contexts=1))
        assert ballots(sqlite_store, first) == {"ok": PERSONAS * 2}
        made = len(server.chats)
        assert label(sqlite_store, spec(server.url)) == first
        assert len(server.chats) - made == (CONTEXTS - 1) * PERSONAS
        others = [
            spec(server.url, **c) for c in ({"model": "m2"}, {"temperature": 0.5}, {"seed": 5}, {"max_tokens": 9})
        ]
        assert len({first, *(label(sqlite_store, other) for other in others)}) == 5


def test_the_same_profiles_in_another_dataset_are_labelled_for_free(store: Store) -> None:
    """A call is known by what is sent: the same profile in the same context is asked once, whatever it belongs to."""
    add(store, small_profiles(2, contexts=CONTEXTS))
    add(store, small_profiles(2, contexts=CONTEXTS), "again")
    add(store, small_profiles(3, contexts=CONTEXTS + 1), "larger")
    with hostile_server(lambda request: completion(*[votes([1], ["2-3"])] * request.n)) as server:
        first = label(store, spec(server.url))
        made = len(server.chats)
        second = labelling.plan(store, spec(server.url, dataset="again"))
        progress = execution.execute(store, second)
        assert len(server.chats) == made, "no call at all"
        assert (progress.fresh, progress.reused) == (0, 2 * CONTEXTS * PERSONAS * 2)
        label(store, spec(server.url, dataset="larger"))
        assert len(server.chats) - made == (3 * (CONTEXTS + 1) - 2 * CONTEXTS) * PERSONAS, "only what is new"
    assert first != second
    assert ballots(store, first) == ballots(store, second)
    with store.read() as connection:
        one, other = ([tuple(row)[3:] for row in labellings.tallies(connection, i)] for i in (first, second))
        calls = [
            set(connection.execute(sa.select(ballot.c.call).where(ballot.c.labelling == i)).scalars())
            for i in (first, second)
        ]
    assert sorted(one) == sorted(other)
    assert calls[0] == calls[1], "the votes of both came from the same calls"


def test_a_labelling_of_nothing_is_refused(sqlite_store: Store) -> None:
    with hostile_server() as server:
        with pytest.raises(StoreError, match="no dataset named 'small'"):
            labelling.plan(sqlite_store, spec(server.url))
        with pytest.raises(StoreError, match="--draws"):
            labelling.plan(sqlite_store, spec(server.url, draws=0))
    with sqlite_store.read() as connection:
        assert labellings.all_rows(connection) == []
