"""Step 2 of a new run: what is asked of whom, with which memory, how it is sampled, and who judges."""

from __future__ import annotations

import streamlit as st

from cimemories.analysis.labels import default_labelling
from cimemories.evaluation.spec import MESSAGE_TOKENS, THINKING
from cimemories.files import uploaded
from cimemories.seeds import SeedError
from cimemories.seeds.presets import Sampling
from cimemories.seeds.prompts import PromptFile, levels, read_prompt_file
from cimemories.seeds.reading import LARGEST_FILE
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.ui import page, safe, url
from cimemories.ui.draft import Draft
from pages.evaluate import run_judges, run_new_model
from pages.evaluate.run_actions import sentence

OWN = "own"
LEVELS = {
    "base": "base: the task alone",
    "light": "light: one sentence on privacy",
    "medium": "medium: what not to share",
    "high": "high: the strictest",
    OWN: "a file of your own",
}
FULL, NECESSARY, INAPPROPRIATE, RANDOM = "full", "necessary", "inappropriate", "random"
MEMORIES = {
    FULL: "everything of the user",
    NECESSARY: "all that is necessary, and K inappropriate",
    INAPPROPRIATE: "all that is inappropriate, and K necessary",
    RANDOM: "K of the user's attributes, at random",
}
BY_LABELS = (NECESSARY, INAPPROPRIATE)
ORDERS = {"fixed": "as the profile has them", "shuffled": "shuffled by the seed"}
DEFAULTS, MAKERS, VALUES = "defaults", "makers", "values"
SAMPLINGS = {
    DEFAULTS: "the model's defaults",
    MAKERS: "what its makers recommend",
    VALUES: "these values",
}
MITIGATIONS = {
    "none": "none",
    "gate": "gate: first ask what the task needs",
    "rewrite": "rewrite: take out what is not needed",
}
THOUGHTS = {
    "default": "the model's default",
    "on": "on",
    "off": "off",
    "low": "little (reasoning_effort low)",
    "medium": "some (reasoning_effort medium)",
    "high": "much (reasoning_effort high)",
}


def draw(store: Store, draft: Draft, data: list[DatasetRow]) -> str:
    """Draw the step; what is still missing or does not go together, in words."""
    model = run_new_model.chosen(draft)
    left, middle, right = st.columns(3, gap="large")
    with left:
        safe.heading("What is asked")
        dataset = _asked(draft, data)
        missing = _prompt(draft)
    with middle:
        safe.heading("Memory")
        missing = _memory(store, draft, dataset) or missing
    with right:
        safe.heading("The model")
        missing = _sampling(draft) or missing
    safe.heading("Judges")
    simulated = run_new_model.is_simulated(draft)
    first = (run_judges.SIMULATED,) if simulated else (run_judges.SAME, run_judges.MATCHER)
    run_judges.draw(draft, simulated=simulated, first=first, model=model.model)
    checks, _ = st.columns([1, 2])
    with checks:
        run_judges.check(draft)
    return missing or _judges(draft, model)


def _judges(draft: Draft, model: run_new_model.Chosen) -> str:
    try:
        judges = run_judges.specs(draft, model.base_url, model.key_env, model.model)
    except StoreError as problem:
        return sentence(problem)
    if draft.get("check") == "model" and all(judge.kind != "llm" for judge in judges):
        return "The task check by a model is asked of the first judge's model, and no judge is a model."
    return ""


def _asked(draft: Draft, data: list[DatasetRow]) -> DatasetRow:
    by_name = {row.name: row for row in data}
    name = st.selectbox(
        "Dataset",
        list(by_name),
        format_func=safe.option,
        key=draft.key("dataset", data[0].name, list(by_name)),
        help="Whose users the messages are written for",
    )
    row = by_name[name]
    one, two, three = st.columns(3)
    with one:
        st.number_input(
            "Profiles",
            1,
            max(row.profiles, 1),
            key=draft.number(f"profiles.{row.id}", max(row.profiles, 1), 1, max(row.profiles, 1)),
            help="The first so many of the dataset",
        )
    with two:
        st.number_input(
            "Contexts",
            1,
            max(row.contexts, 1),
            key=draft.number(f"contexts.{row.id}", max(row.contexts, 1), 1, max(row.contexts, 1)),
            help="The first so many; each is a task with its recipient",
        )
    with three:
        st.number_input(
            "Samples n",
            1,
            100,
            key=draft.number("samples", 5, 1, 100),
            help="Messages a context; Violation@1 to @n follow from them",
        )
    return row


def _prompt(draft: Draft) -> str:
    known = [level for level in levels("respond") if level != OWN]
    level = st.selectbox(
        "Prompt level",
        [*known, OWN],
        format_func=lambda item: LEVELS.get(item, item),
        key=draft.key("level", "base", [*known, OWN]),
        help="How much the prompt says about privacy, from nothing to the strictest (after the paper's Figure 8)",
    )
    if level != OWN:
        return ""
    upload = st.file_uploader(
        "Prompt file",
        type=["yaml", "yml"],
        key="run_new.upload",
        help="YAML with task_solving (and adversary_reveal, memory), each from a level to a template: docs/formats.md",
    )
    if upload is not None and upload.size > LARGEST_FILE:
        page.error("This prompt file cannot be used.", f"It is larger than {LARGEST_FILE:,} bytes.")
        return "The prompt file cannot be used."
    if upload is not None:
        draft.put("prompt_file", (upload.name, bytes(upload.getvalue())))
    try:
        file = prompt_file(draft)
    except SeedError as problem:
        page.error("This prompt file cannot be used.", sentence(problem))
        return "The prompt file cannot be used."
    if file is None:
        return "Choose a prompt file, or one of the levels."
    own = file.levels("respond")
    if not own:
        return f"{file.name} has no prompt for messages (task_solving)."
    st.selectbox(
        "Level of the file", own, format_func=safe.option, key=draft.key("own_level", own[0], own),
        help="The levels under task_solving",
    )  # fmt: skip
    rest = [word for word, kind in (("judges", "judge"), ("memory", "memory")) if file.levels(kind)]
    also = f", which has prompts for {' and '.join(rest)} too" if rest else ""
    safe.inline(f"From {file.name}{also}.", muted=True)
    if file.levels("judge"):
        st.toggle(
            "Judges that are models read with the file's wording",
            key=draft.key("own_judge", default=False),
            help="The first level of its adversary_reveal; numbers are then not comparable to those of the usual one",
        )
    return ""


def prompt_file(draft: Draft) -> PromptFile | None:
    """The file that was uploaded; None where there is none. Raises SeedError for one that cannot be used."""
    held = draft.get("prompt_file")
    if not held:
        return None
    name, content = held
    with uploaded(content, str(name)) as path:
        try:
            return read_prompt_file(path)
        except SeedError as problem:
            raise SeedError(str(problem).replace(f"{path.parent}/", "")) from None


def _memory(store: Store, draft: Draft, dataset: DatasetRow) -> str:
    kind = st.selectbox(
        "What the assistant holds",
        list(MEMORIES),
        format_func=MEMORIES.__getitem__,
        key=draft.key("memory", FULL, list(MEMORIES)),
        help="What is retained of a user's attributes in each context (the paper's Figure 5 varies K). What it does "
        "not hold is no flow.",
    )
    if kind != FULL:
        least = 1 if kind == RANDOM else 0
        st.number_input(
            "K",
            least,
            100_000,
            key=draft.number("k", 50 if kind == RANDOM else 20, least, 100_000),
            help="A smaller K of the same seed is always a part of a larger one; several K are a sweep",
        )
    order = st.selectbox(
        "Order",
        list(ORDERS),
        format_func=ORDERS.__getitem__,
        key=draft.key("order", "fixed", list(ORDERS)),
        help="One order for all contexts of a user, so that servers can cache the beginning",
    )
    if kind != FULL or order == "shuffled":
        st.number_input(
            "Seed of the memory",
            0,
            2**31 - 1,
            key=draft.number("memory_seed", 0, 0, 2**31 - 1),
            help="Decides which attributes are taken, and the order where it is shuffled",
        )
    templates = list(levels("memory"))
    st.selectbox(
        "Each attribute as",
        templates,
        format_func=lambda item: MEMORY_LINES.get(item, item),
        key=draft.key("template", "bullets", templates),
        help="How one memory stands in the prompt",
    )
    if kind in BY_LABELS and default_labelling(store, dataset.id) is None:
        page.notice(
            "This memory goes by labels, and the dataset has none: nobody has said yet what is necessary and what is "
            "inappropriate. Label it first, or choose everything or a random memory."
        )
        url.page_link("labels", "Label the dataset", icon=":material/label:", dataset=dataset.id)
        return "The memory goes by labels, which the dataset does not have."
    return ""


MEMORY_LINES = {
    "bullets": "- statement",
    "plain": "statement alone",
    "numbered": "1. statement",
    "keyed": "- key: statement",
    "grouped": "- [domain] statement",
}


def recommended(draft: Draft) -> tuple[Sampling, ...]:
    """What the makers of the chosen model recommend, for the thinking that is chosen where that matters."""
    preset = run_new_model.preset_of(draft)
    if preset is None:
        return ()
    thinking = draft.get("thinking", "default")
    thinks = {"on": True, "off": False}.get(thinking, preset.thinking.default == "on" if preset.thinking else None)
    return tuple(s for s in preset.sampling if s.thinking is None or thinks is None or s.thinking == thinks)[:1]


def _sampling(draft: Draft) -> str:
    st.selectbox(
        "Thinking",
        THINKING,
        format_func=lambda item: THOUGHTS.get(item, item),
        key=draft.key("thinking", "default", THINKING),
        help="Of models that reason first. What they think is kept apart from the message and not judged unless a "
        "judge is told to.",
    )
    advice = recommended(draft)
    options = [DEFAULTS, *([MAKERS] if advice else []), VALUES]
    how = st.selectbox(
        "Sampling",
        options,
        format_func=SAMPLINGS.__getitem__,
        key=draft.key("sampling", DEFAULTS, options),
        help="The model's defaults send nothing, and the manifest says so. Anything else is recorded as sent.",
    )
    missing = ""
    if how == MAKERS and advice:
        safe.inline(f"{_values(advice[0].values)} ({advice[0].source})", muted=True)
    elif how == VALUES:
        one, two = st.columns(2)
        with one:
            st.number_input(
                "Temperature", 0.0, 2.0, value=None, step=0.1, format="%.2f", placeholder="default",
                key=draft.key("temperature", None), help="0 is the likeliest word each time",
            )  # fmt: skip
        with two:
            st.number_input(
                "Top p", 0.0, 1.0, value=None, step=0.05, format="%.2f", placeholder="default",
                key=draft.key("top_p", None), help="Only the likeliest words that make up this share",
            )  # fmt: skip
        st.text_input(
            "Further fields",
            key=draft.key("fields", ""),
            placeholder='{"top_k": 20, "min_p": 0}',
            help="A JSON object; its fields go into every request as they stand",
        )
        try:
            run_judges.fields_of(draft.get("fields"))
        except StoreError as problem:
            missing = sentence(problem)
    st.selectbox(
        "Mitigation",
        list(MITIGATIONS),
        format_func=MITIGATIONS.__getitem__,
        key=draft.key("mitigation", "none", list(MITIGATIONS)),
        help="Something to compare the plain model with; each asks one call more for every message",
    )
    one, two = st.columns(2)
    with one:
        st.number_input(
            "Token limit", 16, 131_072, value=None, step=128, placeholder="the server's",
            key=draft.key("max_tokens", MESSAGE_TOKENS),
            help="Of one message, its thinking included. What is cut counts as missing, so models that think need "
            "more, such as 8192. Empty: no limit is sent, the server's own holds.",
        )  # fmt: skip
    with two:
        st.number_input(
            "Seed", 0, 2**31 - 1, value=None, placeholder="none", key=draft.key("seed", None),
            help="Sent with each request where the server takes it. None is right for most: some servers refuse it.",
        )  # fmt: skip
    st.number_input(
        "Patience in seconds",
        1,
        3600,
        step=60,
        key=draft.number("timeout", 120, 1, 3600),
        help="How long the first try of a request may take; each retry waits twice as long",
    )
    return missing


def _values(values: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in dict(values).items()) if isinstance(values, dict) else ""
