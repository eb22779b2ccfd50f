"""Hostile text and what is shown of it."""

from __future__ import annotations

import re

HOSTILE = "![x](http://127.0.0.1:1/a.png) <img src=x onerror=alert(1)>"
# What draws text as it is, or draws only our own markup; all else reads it as markdown. Strips, a component,
# name contexts under the pointer as text; test_browser.py looks at that.
SAFE = {"html", "dataframe", "code", "text", "selectbox", "multiselect", "bidi_component"}
LABELLED = {"expander", "button"}
# An image, a link, an element or an icon, where no backslash makes text of it.
MARKUP = re.compile(r"(?<!\\)(!\[|\]\(|<|:material)")
