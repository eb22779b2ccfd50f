"""What is kept of what a model wrote, and the reason for everything that is not."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimemories.curation import authoring_rules
from cimemories.curation.authoring_rules import Reason, broken_rules, carries, normalized, review
from cimemories.curation.offline import generate_profiles
from cimemories.llm.replies import AnswerError, read_object
from cimemories.model import DOMAINS, GENERAL, Attribute

EVENT = "divorce proceedings"
HELD = [
    Attribute("name", "Ann Day", GENERAL, GENERAL, "My name is Ann Day."),
    Attribute("rent", 1450, "housing", EVENT, "My rent is $1,450."),
]


def item(key: object = "retainer", value: object = 4350, statement: object = "I paid $4,350.", **more: object) -> dict:
    return {"key": key, "value": value, "statement": statement, **more}


def reasons(*items: object, domain: str = "finance", wanted: int = 9) -> list[str]:
    """Why each of these was turned down; what was only left out by the model is not counted."""
    accepted, rejected = review({domain: list(items)}, {"finance": wanted}, EVENT, HELD, 0)
    turned_down = [str(r.reason) for r in rejected if r.reason != Reason.TOO_FEW]
    assert len(accepted) + len(turned_down) == len(items)
    return turned_down


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (item(), None),
        (item(value=4350.0, statement="I paid $4,350.00."), None),
        (item("Lawyer's Fee"), None),
        (item(value=True, statement="I have told nobody."), None),
        (item(value=["Ann", "Bo"], statement="My children are Bo and Ann."), None),
        (item(value=""), Reason.EMPTY_VALUE),
        (item(value="  \n"), Reason.EMPTY_VALUE),
        (item(value=[]), Reason.EMPTY_VALUE),
        (item(value=["Ann", " "], statement="I have Ann."), Reason.EMPTY_VALUE),
        (item(statement=" "), Reason.EMPTY_STATEMENT),
        (item(value=True, statement=""), Reason.EMPTY_STATEMENT),
        (item(statement="I paid $4,530."), Reason.VALUE_NOT_SAID),
        (item(value=["Ann", "Bo"], statement="My child is Ann."), Reason.VALUE_NOT_SAID),
        (item(statement="The lawyer took $4,350."), Reason.NOT_FIRST_PERSON),
        (item("rent"), Reason.DUPLICATE_KEY),
        (item("Rent"), Reason.DUPLICATE_KEY),
        (item("name", "Ann", "I am Ann."), Reason.DUPLICATE_KEY),
        (item("full_name", "Ann", "I am Ann."), Reason.DUPLICATE_KEY),
        (item(value=1450, statement="my rent  is $1,450"), Reason.DUPLICATE_STATEMENT),
        (item(value=None), Reason.WRONG_TYPE),
        (item(value={"sum": 4350}), Reason.WRONG_TYPE),
        (item(value=[["Ann"]]), Reason.WRONG_TYPE),
        (item(value=math.nan), Reason.WRONG_TYPE),
        (item(value=math.inf), Reason.WRONG_TYPE),
        (item(statement=4350), Reason.WRONG_TYPE),
        (item(key=None), Reason.WRONG_TYPE),
        ({"key": "retainer", "statement": "I paid."}, Reason.WRONG_TYPE),
        ("I paid $4,350.", Reason.WRONG_TYPE),
        (None, Reason.WRONG_TYPE),
        (item(key="42"), Reason.KEY),
        (item(key="家賃"), Reason.KEY),
        (item(value=10**15, statement=f"I paid ${10**15:,}."), Reason.TOO_LONG),
        (item(value="x" * 301, statement=f"I am {'x' * 301}."), Reason.TOO_LONG),
        (item(value=["a b"] * 21, statement="I say a b."), Reason.TOO_LONG),
        (item(statement="I paid $4,350." + " I did." * 80), Reason.TOO_LONG),
        (item(domain="health"), Reason.OFF_DOMAIN),
        (item(domain="Finance"), None),
    ],
    ids=str,
)
def test_each_reason(written: object, reason: Reason | None) -> None:
    assert reasons(written) == ([] if reason is None else [reason])


def test_domains() -> None:
    assert reasons(item(), domain="leisure") == [Reason.UNKNOWN_DOMAIN]
    assert reasons(item(), domain="health") == [Reason.OFF_DOMAIN], "one of the nine, but nothing is wanted of it here"
    assert reasons(item(), domain=" Finance") == []
    assert reasons("", domain="leisure") == [Reason.UNKNOWN_DOMAIN]


def test_what_is_said_twice_in_one_answer_counts_once() -> None:
    twice = [item("a"), item("a", statement="I gave $4,350."), item("b"), item("c", 7, "I gave 7.")]
    assert reasons(*twice) == [Reason.DUPLICATE_KEY, Reason.DUPLICATE_STATEMENT]
    assert reasons(item("a"), item("b", 7, "I gave 7."), wanted=1) == [Reason.SURPLUS]


def test_a_model_that_writes_too_little_is_told_what_is_missing() -> None:
    wanted = {"finance": 3, "health": 2, "legal": 1}
    accepted, rejected = review({"finance": [item(), item(value="")], "legal": []}, wanted, EVENT, HELD, 2)
    assert [a.key for a in accepted] == ["retainer"]
    assert [(str(r.reason), r.domain, r.attempt) for r in rejected] == [
        (Reason.EMPTY_VALUE, "finance", 2),
        (Reason.TOO_FEW, "finance", 2),
        (Reason.TOO_FEW, "health", 2),
        (Reason.TOO_FEW, "legal", 2),
    ]
    assert [r.detail for r in rejected[2:]] == ["2 of 2 are missing", "1 of 1 are missing"]


@pytest.mark.parametrize(
    ("statement", "value", "carried"),
    [
        ("I paid $4,350.00 for it.", 4350, True),
        ("I paid $4,350.", 4350, True),
        ("I paid 4.35k.", 4350, True),
        ("I paid $14,350.", 4350, False),
        ("I paid $4,350.50.", 4350, False),
        ("I paid 4,3501 in shares.", 4350, False),
        ("I owe $200.", -200, True),
        ("I own three cats.", 3, True),
        ("I own twenty-five hens.", 25, True),
        ("I take 20mg a day.", 20, True),
        ("My share is 5.5 %.", 5.5, True),
        ("My share is 25 percent.", 0.25, True),
        ("It is worth $1.2 million to me.", 1_200_000, True),
        ("I paid $4,350 a month.", "$4,350 per month", True),
        ("I meet them on April 12th, 2025.", "2025-04-12", True),
        ("I meet them on the 12th of April 2025.", "2025-04-12", True),
        ("I meet them on 4/12/2025.", "2025-04-12", True),
        ("I meet them on April 13, 2025.", "2025-04-12", False),
        ("I meet them on April 12.", "2025-04-12", False),
        ("I left in April 2025.", "2025-04", True),
        ("I leave at 3:30 p.m. sharp.", "15:30", True),
        ("I leave at 5:30 p.m. sharp.", "15:30", False),
        ("I leave at 3 PM.", "15:00", True),
        ("I started on October 1, 2024 with weekly therapy.", "weekly therapy starting 2024-10-01", True),
        ("My case is 23-1456.", "No. 23-1456", False),
        ("My case is no. 23-1456.", "No. 23-1456", True),
        ("I work part time at Acme.", "part\u2011time at Acme", True),
        ("I live with “Bo” O’Neil.", '"Bo" O\'Neil', True),
        ("I was divorced.", "divorce", True),
        ("I was divorced.", "widowed", False),
        ("I am Jo.", "Joanna", False),
        ("I am Joanna.", "Jo", False),
        ("My name is 山田 太郎.", "山田 太郎", True),
        ("I told him.", "yes", False),
        ("I told him.", None, False),
        ("I told him.", False, True),
        ("I have Ann, Bo and 3 cats.", ["Bo", "Ann", 3], True),
        ("I have Ann, Bo and 3 cats.", ["Bo", "Ann", 4], False),
    ],
)
def test_whether_a_statement_carries_its_value(statement: str, value: object, carried: bool) -> None:
    assert carries(statement, value) is carried  # type: ignore[arg-type]


def test_the_offline_templates_pass_as_they_stand() -> None:
    """Their sentences carry their values by construction, so each that did not would be an error of the rule."""
    allowed = {Reason.NOT_FIRST_PERSON, Reason.DUPLICATE_KEY}
    for profile in generate_profiles(6, seed=5, per_domain=7):
        for attribute in profile.attributes:
            broken = set(broken_rules(attribute, (), ())) - allowed
            assert not broken or attribute.key == "sex", attribute


# ---- whatever a model writes

texts = st.one_of(
    st.sampled_from(["I", "my rent is 7", "I paid 7 to Ann Lee", "", " ", "She pays", "\x00", "\ud800", "a" * 600]),
    st.text(max_size=40),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.sampled_from([7, "Ann Lee", "2025-04-12"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=5,
)
items = (
    st.fixed_dictionaries(
        {"key": st.sampled_from(["rent", "Rent ", "a", "b", "c_1", "name"]) | values, "value": values},
        optional={"statement": texts | values, "domain": texts},
    )
    | values
)
answers = st.dictionaries(
    st.sampled_from([*DOMAINS, GENERAL, "leisure", " Finance"]) | texts,
    st.lists(items, max_size=6) | values,
    max_size=4,
)


@given(answers, st.dictionaries(st.sampled_from(DOMAINS), st.integers(1, 3), min_size=1, max_size=3))
def test_what_is_accepted_keeps_every_rule(answer: dict, wanted: dict[str, int]) -> None:
    accepted, rejected = review(answer, wanted, EVENT, HELD, 1)
    held = list(HELD)
    for attribute in accepted:
        assert list(broken_rules(attribute, [a.key for a in held], [normalized(a.statement) for a in held])) == []
        assert attribute.domain in wanted
        assert attribute.event == EVENT
        assert re.fullmatch(r"[a-z][a-z0-9_]*", attribute.key)
        assert attribute.statement.strip()
        assert carries(attribute.statement, attribute.value)
        assert "\n" not in attribute.statement
        held.append(attribute)
    assert len({a.key for a in held}) == len(held)
    for domain, count in wanted.items():
        kept = sum(a.domain == domain for a in accepted)
        turned_down = [r for r in rejected if r.domain == domain]
        assert kept <= count
        assert kept == count or turned_down, "whatever is missing has a reason"
    # The database and the next prompt must be able to hold all of it.
    json.dumps([vars(a) for a in accepted], ensure_ascii=False).encode()
    json.dumps([r.as_json() for r in rejected], ensure_ascii=False, allow_nan=False).encode()
    assert all(len(r.said) <= authoring_rules.LONGEST_TEXT for r in rejected)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = read_object(text)
    except AnswerError:
        return
    review(value, {"finance": 1}, EVENT, HELD, 0)
