"""Texts made fit to be shown: control characters visible, credentials in addresses hidden; and names that are plain.

Names and messages come from models, files and other people. A terminal obeys control characters (they move the cursor,
set the title, write to the clipboard), and an override of the writing direction shows `evil.example` as something else.
"""

from __future__ import annotations

import re
from typing import Any

# C0 and C1 controls, the line separators that only some programs break lines at, and the embeddings, overrides and
# isolates of the writing direction. Its plain marks stay: people who write Arabic or Hebrew need them.
CONTROL = "\r(?!\n)|[\x00-\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
_CONTROL = re.compile(CONTROL)
_LAYOUT = frozenset("\n\t")
_USER = re.compile(r"(?<=://)(?:[^\s'\"<>]*@|[^\s'\"<>/]*%40)")
_SECRET_FIELD = re.compile(
    r"((?:[;?&]|%3B|%3F|%26)(?:[\w.%-]*(?:key|token|secret|passw|passfile|pwd|credential|auth|signature)[\w.%-]*"
    r"|options)(?:=|%3D))[^\s;&#'\"<>]+",
    re.IGNORECASE,
)
HIDDEN = "[hidden]"


def visible(text: str) -> str:
    """The text with each control character as a visible one, one for one, so that positions in it stay: ␛ for an
    escape, ␦ for an override of the writing direction. Line ends and tabs stay."""
    return _CONTROL.sub(_picture, text)


def visible_in(value: Any) -> Any:
    """The same for every text in a value of lists and dicts."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {key: visible_in(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_in(item) for item in value]
    return value


def _picture(found: re.Match[str]) -> str:
    character = found[0]
    if character in _LAYOUT:
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's pictures of the control characters
    return "\u2421" if code == 0x7F else "\u2426"


def has_control(text: str) -> bool:
    """Whether the text holds a control character, line ends and tabs among them."""
    return _CONTROL.search(text) is not None


def without_credentials(text: str) -> str:
    """The text with user and password of every address hidden, and every field of one that is named like a secret:
    `http://[hidden]@host/v1?api_key=[hidden]`."""
    return _SECRET_FIELD.sub(rf"\1{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))
