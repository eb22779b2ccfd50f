"""The parts of a server's answer: where the message starts and the reasoning ends, and the meaning of an error.

Every answer passes through here: messages, judgements, ballots, gates, generated profiles, the connection test, batch
files. Servers differ in where they put reasoning (a field, tags in the text, parts of a list, channels), and in how
they refuse one prompt (a finish reason, an HTTP error, an error inside a 200). An ambiguous answer is missing with its
cause: reasoning that is read as a message would show leaks that were only thought.

    read_message({"content": "The tenant mentions ...</think>Dear landlord, ..."}).content    # 'Dear landlord, ...'
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cimemories.model import ResponseStatus
from cimemories.store.calls import Answer
from cimemories.text import RepeatedKeyError, merged

# ---- the message and the reasoning

NEEDS_PARSER = "start the server with the reasoning parser of this model (vLLM: --reasoning-parser)"
ONLY_REASONING = f"only reasoning came back: {NEEDS_PARSER}"
UNCLEAR = f"reasoning stands in the text, and where it ends is not marked: {NEEDS_PARSER}"

# Marks around reasoning, by family: DeepSeek, Qwen and most others; Magistral; Kimi; Cohere; Open Thoughts.
_NAMES = "think|thinking|thought|reasoning|seed:think"
_MARK = re.compile(
    rf"(?P<closing></(?:{_NAMES})>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>|<\|end_of_thought\|>)"
    rf"|<(?:{_NAMES})>|\[THINK\]|◁think▷|<\|START_THINKING\|>|<\|begin_of_thought\|>",
    re.IGNORECASE,
)
# Marks around the message itself in the same families.
_AROUND = re.compile(r"<\|(?:START_RESPONSE|END_RESPONSE|begin_of_solution|end_of_solution)\|>")
# Harmony (gpt-oss): <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)[^<]*<\|message\|>(.*?)(?=<\|(?!message)\w+\|>|\Z)", re.DOTALL)
# The same if the server has removed the special tokens: the names of channels stick to the texts around them.
_STRIPPED = re.compile(r"analysis(?=[A-Z\"'])(.*?)(?:assistantfinal(.*))?\Z", re.DOTALL)
_GRANITE = re.compile(
    r"Here(?:'s| is) my thought process:\s*(.*?)(?:\s*Here(?:'s| is) my response:\s*(.*))?\Z", re.DOTALL
)

_FIRST_WORDS = ("analysis", "Here")


def split_reasoning(text: str) -> tuple[str, str | None, str | None]:
    """Return (message, reasoning, problem) of a text that may hold both. problem: why the message is empty although
    there is text. A text without marks is a message as it stands, with its white space."""
    # Only at the start of the text: a letter may mention an analysis.
    if text[:100].lstrip().startswith(_FIRST_WORDS):
        for pattern in (_STRIPPED, _GRANITE):
            if match := pattern.match(text.lstrip()):
                whole = match[2] is not None
                return (match[2].strip(), match[1].strip(), None) if whole else ("", text.strip(), UNCLEAR)
    # Most texts have none of the signs that marks begin with: looking for the marks takes 20 times as long.
    if "<" not in text and "[" not in text and "◁" not in text:
        return text, None, None
    if "<|channel|>" in text:
        return _of_channels(text)
    outside, inside, end, thinking = "", "", 0, False
    for mark in _MARK.finditer(text):
        if mark["closing"] and not thinking:
            # Some templates write the opening mark into the prompt: all before the closing one is reasoning.
            outside, inside = "", inside + outside + text[end : mark.start()]
        elif thinking:
            inside += text[end : mark.start()]
        else:
            outside += text[end : mark.start()]
        thinking, end = not mark["closing"], mark.end()
    if not end:
        return text, None, None
    message = _AROUND.sub("", outside if thinking else outside + text[end:]).strip()
    if thinking and message:
        return "", text.strip(), UNCLEAR
    reasoning = (inside + text[end:] if thinking else inside).strip()
    return message, reasoning, None if message else ONLY_REASONING


def _of_channels(text: str) -> tuple[str, str | None, str | None]:
    channels = [(match[1], match[2].strip()) for match in _CHANNEL.finditer(text)]
    reasoning = "\n\n".join(said for name, said in channels if name != "final") or None
    final = [said for name, said in channels if name == "final"]
    if final:
        return final[-1], reasoning, None
    return "", reasoning or text.strip(), ONLY_REASONING if channels else UNCLEAR


@dataclass(frozen=True)
class Message:
    """One choice of a completion as it is recorded. problem: why `content` is empty although text was returned."""

    content: str
    reasoning: str | None
    refused: bool
    problem: str | None


def read_message(message: object) -> Message | None:
    """Return the message of a choice, or None for an invalid one. `content` may be a text, null, or a list of parts."""
    if not isinstance(message, Mapping):
        return None
    content = message.get("content") or ""
    thoughts = [text for name in ("reasoning", "reasoning_content") if (text := message.get(name))][:1]
    refused = bool(message.get("refusal"))
    if isinstance(content, list):
        texts = list(_parts(content))
        thoughts += [text for kind, text in texts if kind == "reasoning"]
        refused = refused or any(kind == "refusal" for kind, _ in texts)
        content = "".join(text for kind, text in texts if kind == "text")
    if not isinstance(content, str):
        return None
    text, marked, problem = split_reasoning(content)
    reasoning = "\n\n".join([text for text in thoughts if isinstance(text, str)]) or marked
    if not text.strip() and reasoning and not problem:
        problem = ONLY_REASONING
    return Message(text, reasoning, refused and not text.strip(), problem)


def _parts(content: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield (text, reasoning or refusal; the text) for each part of a message; parts of other kinds hold no text."""
    for part in content:
        if isinstance(part, str):
            yield "text", part
        elif isinstance(part, Mapping):
            kind = str(part.get("type"))
            about = "reasoning" if kind in ("thinking", "reasoning") else "refusal" if kind == "refusal" else "text"
            # Mistral nests the parts of its thinking.
            inner = next((part[n] for n in ("text", "thinking", "reasoning", "refusal") if n in part), None)
            if isinstance(inner, list):
                yield from ((about, text) for _, text in _parts(inner))
            elif isinstance(inner, str):
                yield about, inner


# ---- what an answer is good for

# Finish reasons of a withheld message; a polite refusal in the text is not detected here.
CONTENT_FILTER = "content_filter"
REFUSALS = frozenset({CONTENT_FILTER, "refusal", "safety", "prohibited_content", "blocklist", "content_filtered"})


def truncated(answer: Answer) -> bool:
    """Return whether the server cut the answer at its token limit."""
    return answer.finish_reason == "length"


def status_of(answer: Answer) -> tuple[ResponseStatus, str | None]:
    """Return the status of an answer, and the cause if its text cannot be used."""
    if not answer.ok:
        return ResponseStatus.FAILED, answer.status
    # Before the empty ones: a model that spends its limit on reasoning has no text either, and the limit is why.
    if truncated(answer):
        return ResponseStatus.TRUNCATED, "cut at the token limit"
    if (answer.finish_reason or "").casefold() in REFUSALS:
        return ResponseStatus.REFUSED, "refused by the server"
    if not (answer.content or "").strip():
        return ResponseStatus.EMPTY, answer.error or "no text came back"
    return ResponseStatus.OK, None


# ---- structured answers


class AnswerError(ValueError):
    """An answer that is not a JSON object of the requested shape; the message says what is wrong."""


def read_object(text: str | None, *, repeats: bool = False) -> dict[str, Any]:
    """Return the JSON object in an answer, with or without a code fence. Raises AnswerError for anything else, also one
    that is cut or has a key twice with different values (with `repeats` the last one counts)."""
    body = (text or "").strip()
    # Models put JSON into a code fence even if told not to.
    fenced = re.match(r"```(?:json)?\s*(.*?)\s*```\s*$", body, re.DOTALL)
    if fenced:
        body = fenced.group(1)
    try:
        value = json.loads(body, object_pairs_hook=dict if repeats else merged)
    except RepeatedKeyError as error:
        raise AnswerError(str(error)) from error
    except (ValueError, RecursionError) as error:  # RecursionError: brackets nested thousands deep
        raise AnswerError(f"no JSON object: {str(error)[:120]}") from error
    if not isinstance(value, dict):
        raise AnswerError(f"expected a JSON object, got {type(value).__name__}")
    return value


def read_list(value: dict[str, Any], field: str) -> list[Any]:
    """Return the list in that field. Raises AnswerError if it is missing or no list."""
    items = value.get(field)
    if not isinstance(items, list):
        raise AnswerError(f"the field '{field}' is {'missing' if field not in value else 'not a list'}")
    return items


def read_number(value: object) -> int | None:
    """Return a whole number, also one written as text or as 3.0, or None."""
    if isinstance(value, bool):  # a bool is an int in Python: `true` would be number 1
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    # Nine digits are more than any list needs, and far below where int() refuses a text (4,300 digits).
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value.strip()):
        return int(value)
    return None


def object_schema(properties: Mapping[str, object]) -> dict[str, object]:
    """Return the JSON schema of an object with these fields, all required and no others allowed, as OpenAI's strict
    mode requires."""
    fields = dict(properties)
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def answer_form(name: str, properties: Mapping[str, object]) -> dict[str, object]:
    """Return the response_format that restricts an answer to an object with these fields."""
    schema = {"name": name, "strict": True, "schema": object_schema(properties)}
    return {"type": "json_schema", "json_schema": schema}


Schema = Literal["json_schema", "plain_schema", "json_object", "none"]
BOUNDS = ("minimum", "maximum", "maxItems", "pattern")  # keywords that some servers refuse in a schema


def response_format(form: Mapping[str, object], kind: str) -> dict[str, object]:
    """Return the field response_format of a request in the form that a server takes. form: of `answer_form`. kind:
    json_schema, plain_schema (one without BOUNDS), json_object or none."""
    match kind:
        case "none":
            return {}
        case "json_schema":
            return {"response_format": form}
        case "plain_schema":
            return {"response_format": _without_bounds(form)}
    return {"response_format": {"type": "json_object"}}


def _without_bounds(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_bounds(item) for name, item in value.items() if name not in BOUNDS}
    return [_without_bounds(item) for item in value] if isinstance(value, list) else value


def one_line(text: str) -> str:
    """Return the text with every run of white space as one space, so that it cannot fake a line of a prompt."""
    return " ".join(text.split())


def numbered(statements: Sequence[str]) -> str:
    """Return statements as numbered lines from 1, each on one line."""
    return "\n".join(f"{number}. {one_line(text)}" for number, text in enumerate(statements, 1))


# ---- errors

REFUSED = "refused"  # this prompt is always refused; others are not
NO_CREDIT = "no credit"
_CODES = {
    401: "unauthorised",
    402: NO_CREDIT,
    403: "forbidden",
    404: "unknown model",
    408: "timeout",
    429: "rate limited",
}
_REFUSING = re.compile(
    r"content.?filter|content.?polic|responsible.?ai.?policy|content management policy|\bflagged\b|moderation"
    r"|data.?inspection|content exists risk|usage polic|safety (?:system|filter|check)|invalid_prompt",
    re.IGNORECASE,
)
_UNPAID = re.compile(
    r"insufficient.?(?:quota|balance|credit|fund)|credit balance is too low|out of credits|billing.?hard.?limit"
    r"|payment.?required|exceeded your monthly",
    re.IGNORECASE,
)
_NAMED = (  # the status that a word stands for, if an error comes inside a 200
    (429, re.compile(r"rate.?limit|too many|quota|throttl|resource.?exhausted", re.IGNORECASE)),
    (401, re.compile(r"api.?key|authenti|unauthori", re.IGNORECASE)),
    (404, re.compile(r"not.?found|no such model", re.IGNORECASE)),
    (400, re.compile(r"invalid.?request|bad.?request|validation|context.?length|too long", re.IGNORECASE)),
)
_MOST_READ = 400  # characters of an error's words: servers that echo the prompt do so after their own


def cause_of(status: int, body: object) -> str:
    """Return the cause of a failed call by its HTTP status and its body: REFUSED, NO_CREDIT, or the status in a word
    ('rate limited', 'server error', ...; 'rejected' for an error in this request)."""
    words = _words(body)
    if status in (400, 402, 403, 429) and _UNPAID.search(words):
        return NO_CREDIT
    if status in (400, 403, 422, 451) and _REFUSING.search(words):
        return REFUSED
    return _CODES.get(status, "server error" if status >= 500 else "rejected")


def _words(body: Any) -> str:
    """Return the codes of an error and the beginning of its message, by which it is classified."""
    if isinstance(body, bytes):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            body = body.decode(errors="replace")
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return str(error or "")[:_MOST_READ]
    names = ("innererror", "inner_error", "metadata")
    inner: Mapping[str, Any] = next((error[name] for name in names if isinstance(error.get(name), Mapping)), {})
    codes = [error.get("code"), error.get("type"), inner.get("code"), "flagged" if "flagged_input" in inner else None]
    return " ".join([*(str(code) for code in codes if code), str(error.get("message") or "")[:_MOST_READ]])


def error_inside(content: bytes) -> tuple[int, bytes] | None:
    """Return (status, body of an error) of a 200 that holds an error instead of an answer, or None. Gateways have sent
    their 200 by the time that the model's server fails."""
    # Cheap first: in a JSON text of a message the quotation marks would be escaped.
    if b'"error"' not in content:
        return None
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    error = body.get("error") or first.get("error")
    if not error or (choices and not first.get("error")) or body.get("data"):
        return None
    code = error.get("code") if isinstance(error, dict) else body.get("code")
    status = int(str(code)) if re.fullmatch(r"[45]\d\d", str(code)) else None
    words = _words(error)
    named = next((number for number, pattern in _NAMED if pattern.search(words)), 500)
    if status is None:
        status = 402 if _UNPAID.search(words) else 400 if _REFUSING.search(words) else named
    return status, json.dumps({"error": error if isinstance(error, dict) else {"message": str(error)}}).encode()
