"""Prompts: those of the seeds folder, and those of a user's file in the published layout (docs/formats.md).

    load_prompt("respond", "high").render(memories=..., recipient="Landlord", task="Negotiate a lease")
    read_prompt_file(Path("prompts.yaml")).prompt("respond", "2")

A prompt is identified by the SHA-256 of its template. Only declared placeholders are replaced, in one pass: the text of
a memory may contain braces.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import Field

from cimemories.seeds.reading import SEEDS, Identifier, Seed, SeedError, checked, load, read

TEXT, NUMBERS, KEYS = "text", "numbers", "keys"
FROM_SEEDS = "seeds"
PLACEHOLDERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("respond", TEXT): ("memories", "recipient", "task"),
    ("judge", NUMBERS): ("attributes", "message"),
    ("judge", KEYS): ("attributes", "solution"),
    ("memory", TEXT): ("statement",),
    ("gate", NUMBERS): ("memories", "recipient", "task"),
    ("rewrite", TEXT): ("recipient", "task", "draft"),
    ("check", TEXT): ("recipient", "task", "message"),
    ("session", TEXT): ("recipient", "message"),
    ("route", TEXT): ("domains", "recipient", "task"),
    ("summary", TEXT): ("memories",),
    ("ground", NUMBERS): ("attributes", "lines"),
}
OPTIONAL = {"memory": ("number", "key", "domain")}
BIOGRAPHY = ("name", "sex", "address", "age")  # the sentences of a `biography`, in the order of a profile's fields
REFERENCE = SEEDS / "reference.yaml"
_SECTIONS = {"task_solving": ("respond", TEXT), "adversary_reveal": ("judge", KEYS), "memory": ("memory", TEXT)}


class _PromptFile(Seed):
    version: int = Field(ge=1, le=1)
    placeholders: tuple[Identifier, ...]
    optional: tuple[Identifier, ...] = ()
    templates: dict[str, str] = Field(min_length=1)


class _Biography(Seed):
    name: str
    sex: str
    address: str
    age: str


class _UserFile(Seed):
    task_solving: dict[int | str, str] = Field(default_factory=dict)
    adversary_reveal: dict[int | str, str] = Field(default_factory=dict)
    memory: dict[int | str, str] = Field(default_factory=dict)
    biography: _Biography | None = None


@dataclass(frozen=True)
class Prompt:
    """One prompt of one level. `sha256` is of the template's UTF-8 bytes, before anything is put in.

    answers: the form of the answer: 'text', 'numbers' (a list of attribute numbers, ours), or 'keys' (a JSON object
    from an attribute's key to a sentence, as published judges answer). source: 'seeds', or the name of the user's file.
    """

    kind: str
    level: str
    template: str
    placeholders: tuple[str, ...]
    sha256: str
    answers: str = TEXT
    source: str = FROM_SEEDS

    def render(self, **values: str) -> str:
        """Return the template with each declared placeholder replaced, in one pass: braces in a value stay as they are.
        Tags around a placeholder get a number where the value holds them: a message that closes its own tag would be
        read as instructions from there on.

        Raises SeedError where a declared placeholder gets no value, or a value has no declared placeholder.
        """
        missing = [name for name in self.placeholders if name not in values]
        undeclared = [name for name in values if name not in self.placeholders]
        if missing or undeclared:
            problems = [f"no value for {{{name}}}" for name in missing]
            problems += [f"{{{name}}} is not among its placeholders" for name in undeclared]
            raise SeedError(f"prompt {self.kind}/{self.level}: {'; '.join(problems)}")
        if not self.placeholders:
            return self.template
        return _NAMED.sub(lambda match: values.get(match[1], match[0]), _delimited(self.template, values))


_NAMED = re.compile(r"\{(\w+)\}")
_DELIMITED = re.compile(r"<(\w+)>(\s*\{(\w+)\}\s*)</\1>")


def _delimited(template: str, values: Mapping[str, str]) -> str:
    """Return the template with tags that stand in none of the values put between them."""

    def tagged(match: re.Match[str]) -> str:
        tag, value = match[1], values.get(match[3], "").casefold()
        # As a model reads it: `</ Message >` closes, too.
        if re.search(rf"<\s*/?\s*{tag}\b", value, re.IGNORECASE):
            number = next(n for n in count(2) if f"{tag}-{n}".casefold() not in value)
            tag = f"{tag}-{number}"
        return f"<{tag}>{match[2]}</{tag}>"

    return _DELIMITED.sub(tagged, template)


def recorded(kind: str, level: str, template: str, answers: str, source: str) -> Prompt:
    """Return a prompt as the record keeps it. Kinds that this table does not know declare no placeholder."""
    placeholders = PLACEHOLDERS.get((kind, answers), ()) + OPTIONAL.get(kind, ())
    return Prompt(kind, level, template, placeholders, template_hash(template), answers, source)


def template_hash(template: str) -> str:
    return hashlib.sha256(template.encode()).hexdigest()


def prompt_path(kind: str) -> Path:
    return SEEDS / "prompts" / f"{kind}.yaml"


def levels(kind: str) -> tuple[str, ...]:
    """Return the levels of one kind of prompt, in the order of its file. Raises SeedError for an unknown kind."""
    return tuple(read(prompt_path(kind), _PromptFile).templates)


def load_prompt(kind: str, level: str = "base") -> Prompt:
    """Return one prompt of seeds/prompts/KIND.yaml. Raises SeedError for an unknown kind or level, or where the
    template leaves out a placeholder that the file declares.
    """
    path = prompt_path(kind)
    file = read(path, _PromptFile)
    if level not in file.templates:
        raise SeedError(f"{path}: templates: there is no level '{level}'. Available: {', '.join(file.templates)}")
    template = file.templates[level]
    _require(f"{path}: templates.{level}", template, file.placeholders)
    answers = NUMBERS if (kind, NUMBERS) in PLACEHOLDERS else TEXT
    placeholders = file.placeholders + file.optional
    return Prompt(kind, level, template, placeholders, template_hash(template), answers)


@dataclass(frozen=True)
class PromptFile:
    """A user's prompts: {section: {level: template}}; `name` is the file's. biography: (field, sentence with {value})
    of a person's name, sex, address and age; empty where the file has none."""

    name: str
    sections: dict[str, dict[str, str]]
    biography: tuple[tuple[str, str], ...] = ()

    def levels(self, kind: str) -> tuple[str, ...]:
        return tuple(level for section, (of, _) in _SECTIONS.items() if of == kind for level in self.sections[section])

    def prompts(self, level: str, template: str) -> dict[str, Prompt]:
        """Return the wordings that a run of this level takes from the file, by kind: that of the messages, and that of
        the memory statements if the file has the template. Raises SeedError like `prompt`."""
        kinds = {"respond": level} | ({"memory": template} if template in self.levels("memory") else {})
        return {kind: self.prompt(kind, name) for kind, name in kinds.items()}

    def prompt(self, kind: str, level: str) -> Prompt:
        """Return the prompt of a kind and level. Raises SeedError, which lists the file's levels, if there is none."""
        for section, (of, answers) in _SECTIONS.items():
            if of == kind and level in self.sections[section]:
                return recorded(kind, level, self.sections[section][level], answers, self.name)
        levels = ", ".join(self.levels(kind)) or "none"
        raise SeedError(f"{self.name}: there is no {kind} prompt of level '{level}'. Available: {levels}")


def read_prompt_file(path: Path) -> PromptFile:
    """Read prompts from a YAML file in the published layout: `task_solving` and `adversary_reveal`, each from a level
    to a template, and, ours, `memory` and `biography` (of a reference run: evaluation/reference.py).

    Raises SeedError where it cannot be read, has other fields, no template at all, or a template that leaves out a
    placeholder: {memories} {recipient} {task}; {attributes} {solution}; {statement}. A file that is not a prompt file
    is never quoted: the path may come from a user who may not see its content.
    """
    content = load(path, quoting=False)
    if not isinstance(content, dict) or not any(section in content for section in _SECTIONS):
        raise SeedError(f"{path}: this is not a prompt file: it has no prompt under {', '.join(_SECTIONS)}")
    file = checked(path, content, _UserFile)
    given: dict[str, dict[Any, str]] = {section: getattr(file, section) for section in _SECTIONS}
    # YAML reads a level written as 1 as a number, and everywhere else a level is a text.
    sections = {name: {str(level): text for level, text in templates.items()} for name, templates in given.items()}
    if not any(sections.values()):
        raise SeedError(f"{path}: it has no prompt. Add one under task_solving, adversary_reveal or memory")
    for section, templates in sections.items():
        for level, text in templates.items():
            _require(f"{path}: {section}.{level}", text, PLACEHOLDERS[_SECTIONS[section]])
    sentences = file.biography.model_dump() if file.biography else {}
    for name, sentence in sentences.items():
        if sentence.count("{value}") != 1:
            raise SeedError(f"{path}: biography.{name}: the sentence must have {{value}} exactly once")
    return PromptFile(path.name, sections, tuple(sentences.items()))


def reference_prompts() -> PromptFile:
    """Return prompts and biography in the published layout, in our own words, for reference runs."""
    return replace(read_prompt_file(REFERENCE), name=FROM_SEEDS)


def _require(where: str, template: str, placeholders: tuple[str, ...]) -> None:
    unused = [name for name in placeholders if f"{{{name}}}" not in template]
    if unused:
        raise SeedError(f"{where}: does not use its placeholder {', '.join(unused)}")
