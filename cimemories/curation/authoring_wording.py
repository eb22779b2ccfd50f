"""What a model is sent when it writes attributes, and how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cimemories import seeds
from cimemories.curation.authoring_rules import LONGEST_TEXT, MOST_ITEMS, Reason
from cimemories.model import DOMAINS, GENERAL, Attribute
from cimemories.seeds import Prompt

NONE = "(none)"
MOST_REFUSED = 40  # lines; a model that went wrong more often than that is helped no further by reading on
CHARACTERS_A_TOKEN = 4
TOKENS_AN_ATTRIBUTE = 40  # of an answer: key, value and sentence, with the JSON around them
TOKENS_A_MEMORY = 24  # of a prompt: key and sentence


def prompts() -> dict[str, Prompt]:
    """The wording of both kinds of call, by level."""
    return {level: seeds.load_prompt("generate", level) for level in ("event", GENERAL)}


def request_text(
    prompt: Prompt,
    *,
    biography: Sequence[Attribute],
    memories: Sequence[Attribute],
    about: str,
    wanted: Mapping[str, int],
    refused: Sequence[Mapping[str, object]],
) -> str:
    """One prompt. memories: all that is accepted so far beyond the biography; refused: rejections of this part."""
    return prompt.render(
        biography="\n".join(f"- {one_line(item.statement)}" for item in biography),
        memories="\n".join(f"- {item.key}: {one_line(item.statement)}" for item in memories) or NONE,
        about=about,
        wanted="\n".join(f"- {domain}: {count}" for domain, count in wanted.items()),
        refused="\n".join(_refused(item) for item in refused[-MOST_REFUSED:]) or NONE,
    )


def one_line(text: str) -> str:
    return " ".join(text.split())


def _refused(item: Mapping[str, object]) -> str:
    place = " / ".join(one_line(str(item.get(name) or "")) for name in ("domain", "key") if item.get(name))
    detail = f" ({one_line(str(item['detail']))})" if item.get("detail") else ""
    said = f': "{one_line(str(item["said"]))[:LONGEST_TEXT]}"' if item.get("said") else ""
    return f"- {place or 'the answer'}: {item['reason']}{detail}{said}"


def about_event(name: str, descriptions: Mapping[str, str], *, own: Sequence[str]) -> str:
    """What a call is about: its event with what the seeds say of it; for the general attributes, all events by name."""
    if name == GENERAL:
        return f"{GENERAL}: {', '.join(own)}"
    described = descriptions.get(name)
    return f"{name}: {described}" if described else name


def wanted_of(event: str, *, per_domain: int, general: int) -> dict[str, int]:
    """How many attributes a part is to have, by domain."""
    return {GENERAL: general} if event == GENERAL else dict.fromkeys(DOMAINS, per_domain)


def answer_schema(wanted: Mapping[str, int]) -> dict[str, object]:
    """The response_format that holds an answer to lists of attributes, as many for each domain as are wanted.

    Texts have no pattern and no length here: a server has to compile each new schema, and with xgrammar those bounds
    made that 5 to 20 seconds where it is 0.03 without. The rules look at both anyway.
    """
    text: dict[str, object] = {"type": "string"}
    scalars: list[dict[str, object]] = [text, {"type": "number"}, {"type": "boolean"}]
    items = {"type": "array", "items": text, "minItems": 1, "maxItems": MOST_ITEMS}
    attribute = {
        "type": "object",
        "properties": {
            "key": text,
            "value": {"anyOf": [*scalars, items]},
            "statement": text,
        },
        "required": ["key", "value", "statement"],
        "additionalProperties": False,
    }
    lists = {
        domain: {"type": "array", "items": attribute, "minItems": count, "maxItems": count}
        for domain, count in wanted.items()
    }
    schema = {"type": "object", "properties": lists, "required": list(lists), "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "attributes", "strict": True, "schema": schema}}


def unusable(reason: Reason, attempt: int, detail: str) -> dict[str, object]:
    """The record of an answer of which nothing could be read."""
    return {"reason": str(reason), "attempt": attempt, "domain": "", "key": "", "said": "", "detail": detail}
