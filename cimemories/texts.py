"""Texts made fit to be shown: control characters visible, credentials in addresses hidden; and names that are plain.

Names and messages come from models, files and other people. A terminal obeys control characters (they move the cursor,
set the title, write to the clipboard), and an override of the writing direction shows `evil.example` as something else.
"""

from __future__ import annotations

import re

# C0 and C1 controls, the marks, embeddings, overrides and isolates of the writing direction, and the line separators
# that only some programs break lines at.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LAYOUT = frozenset("\n\t")
_USER = re.compile(r"(?<=://)[^\s'\"<>]*@")
_SECRET_FIELD = re.compile(
    r"([;?&][\w.%-]*(?:key|token|secret|passw|pwd|credential|auth|signature)[\w.%-]*=)[^\s;&#'\"<>]+", re.IGNORECASE
)
HIDDEN = "[hidden]"


def visible(text: str) -> str:
    """The text with each control character as a visible one: ␛ for an escape, <U+202E> for an override of the writing
    direction. Line ends and tabs stay; a text without any is returned as it is."""
    return _CONTROL.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    character = found[0]
    if character in _LAYOUT:
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's pictures of the control characters
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"


def has_control(text: str) -> bool:
    """Whether the text holds a control character, line ends and tabs among them."""
    return _CONTROL.search(text) is not None


def without_credentials(text: str) -> str:
    """The text with user and password of every address hidden, and every field of one that is named like a secret:
    `http://[hidden]@host/v1?api_key=[hidden]`."""
    return _SECRET_FIELD.sub(rf"\1{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))
