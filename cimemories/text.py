"""Texts for display: shares and counts, one line of a long text, escaping for HTML and Markdown, control characters
made visible, credentials in addresses hidden, what is wrong with a value that a user gave.

Names and messages come from models, files and other people. A terminal obeys control characters (they move the cursor,
set the title, write to the clipboard), and an override of the writing direction shows `evil.example` as something
else."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pydantic_core import ErrorDetails, PydanticCustomError

# C0 and C1 controls, the line separators that only some programs break lines at, and the embeddings, overrides and
# isolates of the writing direction. Its plain marks stay: people who write Arabic or Hebrew need them.
CONTROL = "\r(?!\n)|[\x00-\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
_CONTROL = re.compile(CONTROL)
_LAYOUT = frozenset("\n\t")
# A password may itself hold an @, so up to the last one; %40 is a quoted @.
_USER = re.compile(r"(?<=://)(?:[^\s'\"<>]*@|[^\s'\"<>/]*%40)")
# Names by what they contain, since servers invent their own; `options` of a database's URL can hold any setting.
_SECRET_FIELD = re.compile(
    r"((?:[;?&]|%3B|%3F|%26)(?:[\w.%-]*(?:key|token|secret|passw|passfile|pwd|credential|auth|signature)[\w.%-]*"
    r"|options)(?:=|%3D))[^\s;&#'\"<>]+",
    re.IGNORECASE,
)
HIDDEN = "[hidden]"
UNDEFINED = "–"
CELL_LIMIT = 2_000  # characters of a cell of a table, a fact on a card, a hint
LABEL_LIMIT = 90  # characters of an option
Parts = Collection[str] | bool  # which parts of a result are simulated, or just whether it is
# From the first to the last letter of words in a right-to-left script (Hebrew, Arabic, Syriac, Thaana, N'Ko), with the
# numbers and commas of a sentence between them; not with a number before a comma, which may be that of a list's entry.
_RIGHT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]"
_BETWEEN = rf"(?:[ '\"\u20aa-]|(?<={_RIGHT})[,.;](?= )|[0-9]+(?:[.,/:][0-9]+)*(?= ))*"
_RIGHT_TO_LEFT = f"{_RIGHT}(?:{_BETWEEN}{_RIGHT})*"
# As `isolated` makes them: a line that is shown may have been through it before.
_ISOLATE = f"\u2068{_RIGHT_TO_LEFT}\u2069"
_TO_ISOLATE = re.compile(f"{_ISOLATE}|({_RIGHT_TO_LEFT})")
_HIDDEN_OR_ISOLATE = re.compile(f"{_ISOLATE}|{CONTROL}")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>&#|~!$])")


def percent(share: float | None) -> str:
    """Return 0.1237 as '12.4 %'; a dash for None and nan."""
    return UNDEFINED if share is None or share != share else f"{100 * share:.1f} %"


def exact_percent(share: float) -> str:
    """Return a share that a user has set, with up to four digits: 0.6667 as '66.67 %', 1.0 as '100 %'."""
    return f"{100 * share:.4g} %"


def decimal(value: float, digits: int = 2) -> str:
    """Return '0.42', as of a kappa or tau; a value that rounds to 0 has no sign ('-0.00')."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def count(number: float | None, noun: str = "", plural: str = "") -> str:
    """Return 3412 as '3,412', with a noun as '1 profile' or '2 profiles'; plural: if irregular. A dash for None and
    nan."""
    if number is None or number != number:
        return UNDEFINED
    if not noun:
        return f"{number:,.0f}"
    many = f"{noun[:-1]}ies" if re.search(r"[^aeiou]y$", noun) else f"{noun}s"
    return f"{number:,.0f} {noun if number == 1 else plural or many}"


def lies_between(low: str, high: str) -> str:
    """Return 'lies between 10.1 % and 31.0 %', or 'is 10.1 %' if both read the same."""
    return f"is {low}" if low == high else f"lies between {low} and {high}"


def listed(parts: Sequence[str]) -> str:
    """Join as 'a', 'a and b', 'a, b and c'; '' for nothing."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def part_names(parts: Iterable[str]) -> str:
    """Name parts of a result (Scope.simulated), as 'messages and labels': readers know the record's responses as
    messages."""
    return listed(["messages" if part == "responses" else part for part in parts])


def simulated_text(parts: Parts) -> str:
    """Return the badge of a result with these simulated parts (Scope.simulated): 'simulated' if its messages are, else
    the parts, as 'simulated labels and judge'; '' for none."""
    if not parts:
        return ""
    return "simulated" if parts is True or "responses" in parts else f"simulated {part_names(parts)}"


def sentence(text: object) -> str:
    """Give a remark or an error the capital and the full stop of a sentence; '' for nothing. A name at its start stays
    as it is: 'sw_bad.yaml', 'http://host', 'run-1', 'vLLM'."""
    stripped = str(text).strip()
    end = "" if not stripped or stripped.endswith((".", "!", "?")) else "."
    word = re.match(r"[a-z]+(?='s?\b|@\d|[,;:.]?(\s|$))", stripped)  # violation@5, too
    return f"{stripped[:1].upper() if word else stripped[:1]}{stripped[1:]}{end}"


def without_options(text: str) -> str:
    """Return an error for a page, without its note on options of the command line."""
    return re.sub(r" \(on the command line: [^)]*\)", "", text)


def shortened(text: object, limit: int) -> str:
    """Return the text in one line of at most `limit` characters, the last of them … if it was cut."""
    line = _one_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def abbreviated(texts: Sequence[object], limit: int) -> list[str]:
    """Shorten each text to `limit` characters as `shortened` does, but where several would be cut alike, leave out of
    their common beginning what hides in what they differ: 'meta-llama/Llama-3…on official, strict prompt'."""
    lines = [_one_line(text) for text in texts]
    head, room = limit // 3, limit - limit // 3 - 1
    alike: dict[str, set[str]] = {}
    for line in lines:
        if len(line) > limit:
            alike.setdefault(line[: limit - 1], set()).add(line)
    shown = []
    for line in lines:
        same = sorted(alike.get(line[: limit - 1], ())) if len(line) > limit else []
        if len(same) < 2:
            shown.append(shortened(line, limit))
            continue
        # The longest beginning that it shares is one with a neighbour in their order.
        at = same.index(line)
        neighbours = [other for other in same[max(at - 1, 0) : at + 2] if other != line]
        # Not strict: a text may be the beginning of another. os.path.commonprefix does the same, and is for paths.
        pairs = ([*zip(line, other, strict=False), ("", line)] for other in neighbours)
        shared = max(next(n for n, (a, b) in enumerate(compared) if a != b) for compared in pairs)
        words = [n + 1 for n in range(max(len(line) - room, head), shared) if line[n] == " "]
        start = words[0] if words and len(line) - words[0] <= room else max(min(shared, len(line) - room), head)
        shown.append(f"{line[:head]}…{shortened(line[start:], room)}")
    return shown


def html_escaped(text: object, limit: int | None = None) -> str:
    """Return one line as HTML that reads the same; limit: as in `shortened`."""
    return html.escape(_one_line(text) if limit is None else shortened(text, limit))


def markdown_escaped(text: object) -> str:
    """Return Markdown that reads the same in a line or a table cell: one line, no markup, links or addresses."""
    line = _MARKDOWN.sub(r"\\\1", _one_line(text))
    # Some readers make links of bare addresses: an invisible joiner breaks them up.
    return re.sub(r"(?i)(:)(?=//)|(@)(?=\w)|\b(www)(?=\.)", lambda hit: f"{hit[0]}\N{WORD JOINER}", line)


def _one_line(text: object) -> str:
    """Return the text without line breaks, control characters visible; halves of surrogate pairs as '?'."""
    # Half a surrogate pair cannot be encoded: to print it or send it would raise.
    return visible(" ".join(str(text).encode("utf-8", "replace").decode("utf-8").split()))


def visible(text: str) -> str:
    """Return the text with each control character as a visible one, one for one, so that positions in it stay: ␛ for an
    escape, ␦ for an override of the writing direction. Line ends and tabs stay, and so does what `isolated` adds."""
    return _HIDDEN_OR_ISOLATE.sub(_picture, text)


def isolated(text: str) -> str:
    """Return a line for people in which words of a right-to-left script stay by themselves: they displace no number,
    bracket or name beside them. Not for files."""
    return text if text.isascii() else _TO_ISOLATE.sub(lambda m: f"\u2068{m[1]}\u2069" if m[1] else m[0], text)


def clip(text: object, limit: int = CELL_LIMIT) -> str:
    """Return a text with its control characters visible, cut after `limit` characters with a note on how many more
    there are. An override of the writing direction would show a text as another."""
    shown = visible(str(text))
    return shown if len(shown) <= limit else f"{shown[:limit]}… ({len(shown) - limit:,} more characters)"


def display_name(name: str) -> str:
    """Return a name for people, such as 'mental health' for 'mental_health'."""
    return shortened(name.replace("_", " "), LABEL_LIMIT)


def spoken(value: object) -> str:
    """Return an attribute's value for people: yes and no, lists with semicolons, a dash for null."""
    if isinstance(value, list):
        return "; ".join(spoken(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {spoken(part)}" for name, part in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return UNDEFINED if value is None else str(value)


def visible_in(value: Any) -> Any:
    """Apply `visible` to every text in nested lists and dicts."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {key: visible_in(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_in(item) for item in value]
    return value


def _picture(match: re.Match[str]) -> str:
    character = match[0]
    if character in _LAYOUT or len(character) > 1:
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's pictures of the control characters
    # DELETE has a picture of its own; the others of C1 and of the writing direction share one.
    return "\u2421" if code == 0x7F else "\u2426"


def has_control(text: str) -> bool:
    """Return whether the text holds a control character; line ends and tabs count."""
    return _CONTROL.search(text) is not None


def without_credentials(text: str) -> str:
    """Return the text with user and password of every address hidden, and every field named like a secret:
    `http://[hidden]@host/v1?api_key=[hidden]`."""
    return _SECRET_FIELD.sub(rf"\1{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))


# Messages of Python's decoder in plain words.
_JSON = {
    "Expecting value": "a value is expected here",
    "Expecting ',' delimiter": "a comma is expected here, or the end of the list or object",
    "Expecting ':' delimiter": "a colon is expected here",
    "Expecting property name enclosed in double quotes": "the name of a field is expected here, in double quotes",
    "Extra data": "the file should end here",
    "Unterminated string starting at": "a text begins here and has no closing quote",
    "Invalid control character at": "a text has a line break or control character here; write it as \\n or \\u",
    "Invalid \\escape": "a backslash in a text must be written twice",
}


def json_problem(message: str) -> str:
    """Translate a message of Python's JSON decoder into plain words; return any other message unchanged."""
    return _JSON.get(message, message)


# What pydantic finds wrong with a value, in plain words: in files, seeds and settings alike.


def refused(reason: str, about: str = "field") -> PydanticCustomError:
    """Return the error of a validator. about: the part that the reason names itself, so that the message does not: a
    field (no), repeated or bad keys, or the profile as a whole."""
    return PydanticCustomError("reason", "{reason}", {"reason": reason, "about": about})


def complaint(error: ErrorDetails) -> str:
    """Return what is wrong with a value, without its field."""
    problem, value = error["type"], error["input"]
    if problem in ("reason", "value_error"):
        return str(error["ctx"]["reason" if problem == "reason" else "error"])
    context: dict[str, Any] = {"what": kind(value), "text": shown(value, 40), **error.get("ctx", {})}
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        context["what"] += f" '{context['text']}'" if isinstance(value, str) else f" {context['text']}"
    context["size"] = len(value) if isinstance(value, str | list | dict) else 0
    context["unit"] = "characters" if isinstance(value, str) else "items"
    if problem in _REASONS:
        return _REASONS[problem].format(**context)
    return re.sub(r"^\w+ should ", "must ", error["msg"])


_REASONS = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "is_instance_of": "cannot be used as it is ({what})",
    "string_too_short": "is blank; write a text",
    "too_short": "needs {min_length:,} {unit} or more, and has {size:,}",
    **dict.fromkeys(("enum", "literal_error"), "must be one of {expected}, not '{text}'"),
    "greater_than": "must be more than {gt:.15g}, not {text}",
    "greater_than_equal": "must be {ge:.15g} or more, not {text}",
    "less_than_equal": "must be {le:.15g} or less, not {text}",
    "less_than": "must be less than {lt:,}, not {text}",
    **dict.fromkeys(
        ("too_long", "string_too_long"), "has {size:,} {unit}, more than the {max_length:,} allowed; shorten it"
    ),
    "string_type": "must be text, not {what}",
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "must be a whole number, not {what}"
    ),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "must be a finite number, not {what}"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false, not {what}"),
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list, not {what}"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object, not {what}"),
}


def shown(text: object, limit: int = 80) -> str:
    """Return a piece of a file that is fit for a one-line message: nothing unprintable, never long."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)[: limit + 1])
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def kind(value: object) -> str:
    """Return the JSON type of a value, in plain words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    names = {int: "a number", float: "a decimal number", str: "text", list: "a list", dict: "an object"}
    return next((name for python, name in names.items() if isinstance(value, python)), type(value).__name__)


class RepeatedKeyError(ValueError):
    """A key that stands twice in one object of JSON, with different values: either choice would be a guess."""


def merged(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON from its keys and values, as an `object_pairs_hook`. Raises RepeatedKeyError."""
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    # Servers are known that write a key twice, with the same value or once with null: that says one thing.
    values.clear()
    for key, value in pairs:
        if values.get(key) is None:
            values[key] = value
        elif value is not None and value != values[key]:
            raise RepeatedKeyError(f"the key '{shortened(key, 80)}' stands twice in one object, with different values")
    return values


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes these for the start of a formula


def without_formula(cell: object) -> object:
    """Return a cell that is safe in a spreadsheet: text that begins like a formula gets an apostrophe in front."""
    # Spreadsheets run such a cell when the file is opened, and its text may come from a model.
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def duration(seconds: float) -> str:
    """Return a duration in words: '45 s', '3 min', '2 h 10 min'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
