"""The memory in the form of a new run: a memory system with its options."""

from __future__ import annotations

from cimemories.memory import systems
from cimemories.memory.systems import MemorySystemError, Option
from cimemories.text import sentence
from cimemories.ui import page, safe
from cimemories.ui.annotator import Draft

SYSTEM = "system"
HELP = {
    "k": "How many statements reach the prompt at most. To compare several k, make a sweep.",
    "order": "How the statements stand in the prompt: as in the profile, or the best one first",
    "k1": "How much a repeated word counts",
    "b": "How much a long statement is held back, from 0 to 1",
    "model": "Empty for the usual: the model under test, or for embedding vectors made here from words",
    "base_url": "Where that model is served. Empty for where the model under test is.",
}
OWN = "An option of this memory system"


def draw_system(draft: Draft) -> str:
    """Draw the fields. Returns the problem with them, in words."""
    options = {name: systems.about(name) for name in systems.available()}
    name = draft.select(
        "Memory system", "system", options, help="What decides which memories reach the prompt of a task"
    )
    for reason in filter(None, map(systems.missing, systems.names())):
        safe.show(safe.tag("div", safe.coded(f"{reason}."), cls="ci-muted"))
    try:
        for option in systems.options_of(name):
            _field(draft, name, option)
        systems.read_system(label(draft))
    except MemorySystemError as problem:
        page.error("This memory system cannot be used.", sentence(problem))
        return sentence(problem)
    return ""


def contradicts(draft: Draft) -> str:
    """Return what is incompatible with a memory system, once all fields of the step have been drawn."""
    if draft.get("memory") == SYSTEM and draft.get("mitigation") == "gate":
        return "A gate and a memory system both choose what is recalled. Leave one of them out."
    return ""


def label(draft: Draft) -> str:
    """Return the label of the entered memory, such as system:bm25:k=20."""
    name = str(draft.get("system") or systems.available()[0])
    given = {option.name: draft.get(_key(name, option), option.default) for option in systems.options_of(name)}
    texts = [f"{option}={str(value).strip()}" for option, value in given.items() if str(value).strip()]
    return f"{systems.PREFIX}{name}" + (f":{','.join(texts)}" if texts else "")


def _key(name: str, option: Option) -> str:
    return f"system.{name}.{option.name}"


def _field(draft: Draft, name: str, option: Option) -> None:
    key, help = _key(name, option), option.help or HELP.get(option.name, OWN)
    choices = ("true", "false") if isinstance(option.default, bool) else option.choices
    if choices:
        draft.select(option.name, key, choices, str(option.default).lower(), help=help)
    elif isinstance(option.default, int):
        draft.integer(option.name, key, option.default, min(option.default, 1), 100_000, help=help)
    else:
        draft.text(option.name, key, str(option.default), help=help)
