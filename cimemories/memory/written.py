"""Memory systems in which a model decides what reaches the prompt: a router opens domains, or a summary stands in.

Both ask the model under test, unless `model` names another. Their questions are recorded calls, so the same profile and
task recall the same.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Generator
from typing import ClassVar

from cimemories.llm.replies import AnswerError, answer_form, one_line, read_list, read_object
from cimemories.memory.recalled import BY_MODEL, GROUNDS, RULES, Line, MemorySystemError, Question, Recalled
from cimemories.model import Context, Profile
from cimemories.seeds.prompts import load_prompt

_MARK = re.compile(r"^(?:[-*•]|\d{1,4}[.)])\s+")
_HEADING = re.compile(r"^(?:#{1,6}\s|\*\*[^*]*\*\*:?$)")


class _Written:
    """The base of both systems: the model that is asked, and a version that changes with the wording."""

    kind: str

    def __init__(self, model: str = "", base_url: str = "") -> None:
        self.model, self.base_url = model, base_url
        self.prompt = load_prompt(self.kind)
        self.version = f"1, prompt {self.prompt.sha256[:12]}"


class Partition(_Written):
    """Statements are stored by information domain; a router is given the task and the domains, and those that it opens
    are recalled, whole. Names that are no domain of the profile are ignored."""

    name, kind, about = "partition", "route", "partition: the domains that a router opens"

    def ingest(self, profile: Profile) -> None:
        self._stored = [(attribute.domain, attribute.statement) for attribute in profile.attributes]

    def recall(self, context: Context, prompt: str) -> Generator[Question, str, Recalled]:
        sizes = Counter(domain for domain, _ in self._stored)
        if not sizes:
            return Recalled(())
        listed = "\n".join(f"- {one_line(domain)} ({size} notes)" for domain, size in sizes.items())
        names = list(sizes)
        text = self.prompt.render(domains=listed, recipient=one_line(context.recipient), task=one_line(context.task))
        named = {"type": "array", "maxItems": len(names), "items": {"type": "string", "enum": names}}
        placeholders = json.dumps({"domains": names}), json.dumps({"domains": []})
        answer = yield Question(text, placeholders, answer_form("domains", {"domains": named}))
        chosen = read_list(read_object(answer), "domains")
        if any(not isinstance(name, str) for name in chosen):
            raise AnswerError("the router names what is no domain")
        kept = (item for item in enumerate(self._stored) if item[1][0] in chosen)
        return Recalled(tuple(Line(statement, (position,)) for position, (_, statement) in kept))


class Summary(_Written):
    """A model writes one summary of all statements by domain, once for a profile; every task gets all of its lines
    except headings. Attributes of a line are searched for in its text: by rules, and with ground=model by the run's
    judge."""

    name, kind, about = "summary", "summary", "summary: what a model wrote down of all of it"
    choices: ClassVar = {"ground": GROUNDS}

    def __init__(self, model: str = "", base_url: str = "", ground: str = RULES) -> None:
        super().__init__(model, base_url)
        if ground not in GROUNDS:
            raise MemorySystemError(f"ground is {' or '.join(GROUNDS)}, not '{ground}'.")
        if ground == BY_MODEL:
            self.version += f", ground {load_prompt('ground').sha256[:12]}"

    @property
    def stored(self) -> tuple[str, ...]:
        return self._lines

    def ingest(self, profile: Profile) -> Generator[Question, str, None]:
        notes = [f"[{one_line(a.domain)}] {one_line(a.statement)}" for a in profile.attributes]
        self._lines: tuple[str, ...] = ()
        if not notes:
            return
        listed = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))
        longest = "\n".join(f"- {one_line(a.statement)}" for a in profile.attributes)
        answer = yield Question(self.prompt.render(memories=listed), (longest, "- "))
        lines = (line.strip() for line in answer.splitlines())
        kept = (_MARK.sub("", line).strip() for line in lines if line and not _HEADING.match(line))
        self._lines = tuple(line for line in kept if line)

    def recall(self, context: Context, prompt: str) -> Recalled:
        return Recalled(tuple(Line(text) for text in self._lines))
