"""What a server's answer means: one row for each behaviour of a real server, from its public bug reports."""

from __future__ import annotations

import pytest
from hostile import Reply, completion, error
from test_client import outcome

from cimemories.llm.client import FATAL
from cimemories.llm.http import traffic
from cimemories.llm.replies import (
    NO_CREDIT,
    ONLY_REASONING,
    UNCLEAR,
    AnswerError,
    read_message,
    read_object,
    split_reasoning,
    status_of,
)
from cimemories.model import ResponseStatus

HARMONY = "<|channel|>analysis<|message|>Her miscarriage is private.<|end|><|start|>assistant"
LETTER = "Dear landlord,\nplease renew my lease."


@pytest.mark.parametrize(
    ("text", "message", "reasoning"),
    [
        (f"Her miscarriage is private.\n</think>\n{LETTER}", LETTER, "Her miscarriage is private."),
        (f"<think>a</think>{LETTER}", LETTER, "a"),
        (f"<think>a</think>\n<think>b</think>{LETTER}", LETTER, "ab"),
        (f"<reasoning>a</reasoning>{LETTER}", LETTER, "a"),
        (f"<thinking>\na\n</thinking>\n\n{LETTER}", LETTER, "a"),
        (f"[THINK]a[/THINK]{LETTER}", LETTER, "a"),
        (f"a[/THINK]{LETTER}", LETTER, "a"),
        (f"◁think▷a◁/think▷{LETTER}", LETTER, "a"),
        (f"<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>{LETTER}<|END_RESPONSE|>", LETTER, "a"),
        (f"Here is my thought process: a\nHere is my response:\n{LETTER}", LETTER, "a"),
        (f"{HARMONY}<|channel|>final<|message|>{LETTER}<|return|>", LETTER, "Her miscarriage is private."),
        (f"{HARMONY}<|channel|>final<|message|>{LETTER}", LETTER, "Her miscarriage is private."),
        (f"analysisHer miscarriage is private.assistantfinal{LETTER}", LETTER, "Her miscarriage is private."),
        # No reasoning: the text stays as it is, with its white space.
        (f" {LETTER}\n", f" {LETTER}\n", None),
        ("An analysis of my budget: [Your Name] < 3", "An analysis of my budget: [Your Name] < 3", None),
        ("analysis of the lease\nassistantfinal", "analysis of the lease\nassistantfinal", None),
    ],
)
def test_reasoning_in_the_text_is_told_from_the_message(text: str, message: str, reasoning: str | None) -> None:
    assert split_reasoning(text) == (message, reasoning, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<think>Her miscarriage is private.", ONLY_REASONING),
        ("Her miscarriage is private.</think>", ONLY_REASONING),
        (f"{HARMONY}", ONLY_REASONING),
        (f"{LETTER} <think>Her miscarriage", UNCLEAR),
        ("analysisHer miscarriage is private. We write a letter.", UNCLEAR),
        ("<|channel|>oops", UNCLEAR),
    ],
)
async def test_what_was_only_thought_is_missing_and_names_the_parser(text: str, problem: str) -> None:
    answer, _ = await outcome(lambda request: completion(text))
    assert status_of(answer) == (ResponseStatus.EMPTY, problem)
    assert "miscarriage" not in str(answer.content)
    assert "reasoning parser" in problem


async def test_an_answer_in_the_reasoning_field_is_missing_and_names_the_parser() -> None:
    answer, _ = await outcome(lambda request: completion(None, reasoning_content='{"revealed": []}'))
    assert status_of(answer) == (ResponseStatus.EMPTY, ONLY_REASONING)
    assert answer.reasoning == '{"revealed": []}'


@pytest.mark.parametrize(
    ("parts", "message", "reasoning"),
    [
        ([{"type": "text", "text": "Dear "}, {"type": "text", "text": "bank"}], "Dear bank", None),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Dear bank"}], "Dear bank", "hm"),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Dear bank"}],
            "Dear bank",
            "hm",
        ),
        ([{"type": "output_text", "text": "Dear bank"}, {"type": "image_url", "image_url": {}}], "Dear bank", None),
        (["Dear ", "bank"], "Dear bank", None),
    ],
)
async def test_parts_are_joined_and_thinking_is_reasoning(
    parts: list[object], message: str, reasoning: str | None
) -> None:
    answer, server = await outcome(lambda request: completion(parts))
    assert (answer.status, answer.content, answer.reasoning) == ("ok", message, reasoning)
    assert len(server.chats) == 1, "paid once"


def test_a_refusal_among_the_parts_is_one() -> None:
    read = read_message({"content": [{"type": "refusal", "refusal": "I cannot."}]})
    assert read is not None
    assert (read.content, read.refused) == ("", True)


# ---- errors

FLAGGED = {
    "error": {"message": "Chosen moderation", "code": 403, "metadata": {"reasons": ["x"], "flagged_input": "I had"}}
}
AZURE = {
    "error": {
        "message": "The response was filtered due to the prompt triggering the content management policy.",
        "code": "content_filter",
        "innererror": {"code": "ResponsibleAIPolicyViolation"},
    }
}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(403, FLAGGED),
        Reply(400, AZURE),
        Reply(body=AZURE),
        error(400, "Content Exists Risk"),
        error(403, "Your input was flagged."),
        completion(None, refusal="I cannot."),
        completion("", finish_reason="SAFETY"),
    ],
)
async def test_a_prompt_that_is_refused_is_an_answer_and_stops_nothing(reply: Reply) -> None:
    answer, server = await outcome(lambda request: reply, retries=1)
    assert answer.ok, "not owed again when the run is resumed"
    assert status_of(answer)[0] == ResponseStatus.REFUSED
    assert len(server.chats) == 1


@pytest.mark.parametrize(
    "reply",
    [
        error(402, "Insufficient Balance"),
        Reply(429, {"error": {"message": "You exceeded your current quota.", "code": "insufficient_quota"}}),
        Reply(body={"error": {"message": "This request requires more credits", "code": 402}}),
        error(400, "Your credit balance is too low to access the API."),
    ],
)
async def test_without_credit_the_work_ends(reply: Reply) -> None:
    answer, server = await outcome(lambda request: reply, retries=3)
    assert answer.status == NO_CREDIT
    assert NO_CREDIT in FATAL
    assert "Top up, then resume" in str(answer.error)
    assert server.url in str(answer.error)
    assert len(server.chats) == 1, "no try fares better"


@pytest.mark.parametrize(
    ("inside", "status", "tries"),
    [
        ({"error": {"message": "the engine died", "code": 502}, "choices": []}, "server error", 2),
        ({"error": "the engine died"}, "server error", 2),
        ({"error": {"message": "no such model: m"}}, "unknown model", 1),
        ({"error": {"message": "prompt is too long", "code": "400"}}, "rejected", 1),
        (
            {"choices": [{"index": 0, "message": {"content": "Dear"}, "error": {"message": "cut off", "code": 503}}]},
            "server error",
            2,
        ),
    ],
)
async def test_an_error_inside_a_200_is_what_it_names(inside: dict[str, object], status: str, tries: int) -> None:
    answer, server = await outcome(lambda request: Reply(body=inside, headers={"retry-after-ms": "1"}), retries=1)
    assert answer.status == status
    assert any(said in str(answer.error) for said in ("engine died", "no such model", "too long", "cut off"))
    assert len(server.chats) == tries


@pytest.mark.parametrize(
    "inside",
    [
        {"error": {"message": "slow down", "code": 429}},
        {"error": {"message": "slow down", "type": "rate_limit_error"}, "choices": None},
    ],
)
async def test_a_limit_inside_a_200_is_waited_for(monkeypatch: pytest.MonkeyPatch, inside: dict[str, object]) -> None:
    monkeypatch.setattr(traffic, "FIRST_PAUSE", 0.001)
    answer, server = await outcome(
        lambda request: completion("Dear") if request.number == 5 else Reply(body=inside), retries=1
    )
    assert (answer.status, answer.content) == ("ok", "Dear")
    assert len(server.chats) == 6


async def test_a_message_that_speaks_of_an_error_is_a_message() -> None:
    text = 'The server said {"error": "no such lease"}.'
    answer, _ = await outcome(lambda request: completion(text))
    assert (answer.status, answer.content) == ("ok", text)


async def test_another_model_that_answers_is_recorded() -> None:
    whole = completion("Dear bank")
    assert isinstance(whole.body, dict)
    other, _ = await outcome(lambda request: Reply(body={**whole.body, "model": "a-smaller-model"}))
    same, _ = await outcome(lambda request: Reply(body={**whole.body, "model": "m"}))
    unnamed, _ = await outcome(lambda request: whole)
    assert [a.served_model for a in (other, same, unnamed)] == ["a-smaller-model", None, None]


# ---- structured answers


@pytest.mark.parametrize(
    "text",
    [
        '{"revealed": [{"attribute": 1}], "revealed": []}',
        '{"revealed": [{"attribute": 1, "attribute": 2}]}',
    ],
)
def test_a_key_that_stands_twice_makes_an_object_unusable(text: str) -> None:
    with pytest.raises(AnswerError, match="stands twice"):
        read_object(text)
    assert read_object(text, repeats=True), "as the authors' code reads it"


def test_a_key_that_says_the_same_twice_is_read_once() -> None:
    assert read_object('{"a": [1], "b": null, "a": [1], "b": 2, "a": null}') == {"a": [1], "b": 2}


def test_a_repeated_key_among_many_is_found_at_once() -> None:
    keys = [f'"{number}": 1' for number in range(100_000)]
    with pytest.raises(AnswerError, match="the key '0' stands twice"):
        read_object(f'{{{", ".join(keys)}, "0": 2}}')
