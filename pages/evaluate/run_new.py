"""A new run in three steps: the model, the experiment, the plan. Entries stay when going back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from cimemories.evaluation.compositions import read_composition
from cimemories.evaluation.estimates import Estimate, estimate, require_fit
from cimemories.evaluation.planning import as_reference, look_up, plan
from cimemories.evaluation.sessions import ALL
from cimemories.evaluation.spec import Group, RunSpec
from cimemories.flows.labels import default_labelling
from cimemories.labels.whatif import effective_labels
from cimemories.llm.capabilities import Server
from cimemories.llm.endpoint import ASSISTANT, SIMULATOR, is_assistant
from cimemories.model import Channel
from cimemories.seeds.presets import Sampling
from cimemories.seeds.prompts import PromptFile, levels, read_prompt_file
from cimemories.seeds.reading import LARGEST_FILE, SeedError, read_uploaded
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.text import sentence
from cimemories.ui import page, safe, url
from cimemories.ui.annotator import Draft
from pages.evaluate import run_judges
from pages.evaluate.run_detail import PROBLEMS, show_run, start_button
from pages.evaluate.run_engine import draw_engine
from pages.evaluate.run_estimate import allow_too_long, draw_power, draw_prices, prices, show
from pages.evaluate.run_memory import SYSTEM, contradicts, draw_system, label
from pages.evaluate.run_model import chosen, draw_model, is_simulated, preset_of
from pages.evaluate.run_settings import draw_field, draw_group, values

OWN = "own"
FULL, NECESSARY, INAPPROPRIATE, RANDOM = "full", "necessary", "inappropriate", "random"
MEMORIES = {
    FULL: "all attributes",
    NECESSARY: "all necessary and K inappropriate",
    INAPPROPRIATE: "all inappropriate and K necessary",
    RANDOM: "K random attributes",
    SYSTEM: "what a memory system recalls",
}
LAST = "last"
SESSIONS = {"": "none: each task starts from scratch", ALL: "all earlier messages", LAST: "the last N earlier messages"}
DEFAULTS, MAKERS, VALUES = "defaults", "makers", "values"
SAMPLINGS = {DEFAULTS: "model defaults", MAKERS: "recommended by its makers", VALUES: "custom"}
SETTINGS = RunSpec.described()
# Settings with their own fields in the form; it draws all others by their groups.
DRAWN_APART = {
    *("dataset", "profiles", "contexts", "samples", "model", "base_url", "api_key_env", "preset", "prompt_level"),
    *("memory", "sessions", "temperature", "sampling", "prices", "memory_prices", "cap"),
}
# The values that the paper's own settings give to others.
BY_REFERENCE = {
    "memory_template": SETTINGS["memory_template"].setting.labels["plain"],
    "mitigation": "none",
    "max_tokens": SETTINGS["max_tokens"].setting.placeholder,
    "seed": "none",
}

# ---- the steps


MODEL, EXPERIMENT, PLAN = 1, 2, 3
STEPS = {MODEL: "1 Model", EXPERIMENT: "2 Experiment", PLAN: "3 Plan and start"}


def draw(store: Store, data: list[DatasetRow]) -> None:
    """Draw the current step, with the way back and forward."""
    draft = Draft("run_new")
    step = int(draft.get("step") or MODEL)
    parts: list[safe.Html | str] = []
    for number, title in STEPS.items():
        cls = "ci-chip" if number == step else "ci-chip ci-none"
        parts += [safe.tag("span", safe.tag("b", title) if number == step else title, cls=cls), " "]
    safe.show(safe.tag("div", *parts, cls="ci-line"))
    # A separate place for each step: the content of another one is gone at once, not when this one is done.
    places = {number: st.empty() for number in STEPS}
    with places[step].container():
        if step == PLAN:
            draw_plan(store, draft, data)
        else:
            missing = draw_model(store, draft) if step == MODEL else draw_experiment(store, draft, data)
            columns = st.columns([1, 2, 8] if step > MODEL else [2, 9], vertical_alignment="center")
            if step > MODEL:
                with columns[0]:
                    _back(draft, step)
            name = "To the experiment" if step == MODEL else "To the plan"
            icon, key = ":material/arrow_forward:", f"show.run_new.forward.{step}"
            # Never disabled: it would still be for the click right after the last field was typed.
            pressed = columns[-2].button(name, type="primary", icon=icon, key=key)
            if missing:
                with columns[-1]:
                    safe.inline(missing, muted=not pressed)
            elif pressed:
                _go(draft, step + 1)
    draft.keep()


def _back(draft: Draft, step: int) -> None:
    if st.button("Back", icon=":material/arrow_back:", key="show.run_new.back"):
        _go(draft, step - 1)


def _go(draft: Draft, step: int) -> None:
    draft.keep()
    draft.put("step", step)
    st.rerun()


# ---- step 2: the experiment


def draw_experiment(store: Store, draft: Draft, data: list[DatasetRow]) -> str:
    """Draw the step. Returns what is still missing or incompatible, in words."""
    model = chosen(draft)
    served = is_assistant(model.base_url)
    if not served:
        run_judges.reference(draft)
    missing: list[str] = []
    draw = partial(
        draw_group,
        draft,
        RunSpec,
        given=lambda: filled(draft),
        own={
            "dataset": lambda: draw_dataset(draft, data),
            "prompt_level": lambda: missing.append(_prompt(draft)),
            "memory": lambda: missing.append(_memory(store, draft, data)),
            "sessions": lambda: _sessions(draft),
            "sampling": lambda: missing.append(_sampling(draft)),
            **dict.fromkeys(("profiles", "contexts", "samples", "temperature"), lambda: None),
        },
        fixed=BY_REFERENCE if draft.get("reference") and not served else None,
    )
    groups = {"Task": Group.TASK, "Memory": Group.MEMORY, "Model settings": Group.MODEL}
    for column, (title, group) in zip(st.columns(3, gap="large"), groups.items(), strict=True):
        with column:
            safe.heading(title)
            draw(group)
    safe.heading("Judges")
    first = (run_judges.MATCHER,) if served else ()
    run_judges.draw_judges(draft, simulated=is_simulated(draft), first=first, same=not served, model=model.model)
    with st.columns([1, 2])[0]:
        draw(Group.JUDGING)
    missing = [*reversed(missing), contradicts(draft)]
    try:
        judges = run_judges.specs(draft, model.base_url, model.key_env, model.model)
        if draft.get("check") == "model" and all(judge.kind != "llm" for judge in judges):
            missing.append(
                "The task check uses the first judge's model, and no judge is a model. Add one, or check by rules."
            )
    except StoreError as problem:
        missing.append(sentence(problem))
    return next(filter(None, missing), "")


def draw_dataset(draft: Draft, data: list[DatasetRow]) -> tuple[DatasetRow, int, int, int]:
    """Draw the fields for a dataset and the numbers of its profiles, contexts and samples; returns all four."""
    by_name = {row.name: row for row in data}
    help = "Its profiles are the users that messages are written for"
    row = by_name[draft.select("Dataset", "dataset", list(by_name), help=help)]
    with st.container(key=f"amounts_{draft.name}"):  # named for style.css
        one, two, three = st.columns(3)
    with one:
        most, help = max(row.profiles, 1), "How many, from the first on"
        profiles = draft.integer("Profiles", f"profiles.{row.id}", most, 1, most, help=help)
    with two:
        most, help = max(row.contexts, 1), "How many, from the first on. A context is a task and its recipient."
        contexts = draft.integer("Contexts", f"contexts.{row.id}", most, 1, most, help=help)
    with three:
        draw_field(draft, SETTINGS["samples"])
    return row, profiles, contexts, int(draft.get("samples"))


def _prompt(draft: Draft) -> str:
    options = dict.fromkeys((*levels("respond"), OWN))
    level = draft.select(
        "Prompt level",
        "level",
        {item: SETTINGS["prompt_level"].setting.labels.get(item, item) for item in options} | {OWN: "your own file"},
        "base",
        help="How much the prompt says about privacy (after the paper's Figure 8)",
    )
    if level != OWN:
        return ""
    upload = st.file_uploader(
        "Prompt file",
        type=["yaml", "yml"],
        key="run_new.upload",
        help="YAML with task_solving (and adversary_reveal, memory), each from a level to a template: docs/formats.md",
    )
    if upload is not None:
        # Kept as bytes: Streamlit forgets an upload when another step is drawn. A byte more than allowed is kept of a
        # file that is too large, so that it is refused.
        draft.put("prompt_file", (upload.name, upload.getvalue()[: LARGEST_FILE + 1]))
    try:
        file = prompt_file(draft)
    except SeedError as problem:
        page.error("This prompt file cannot be used.", sentence(problem))
        return "The prompt file cannot be used."
    if file is None:
        return "Choose a prompt file, or one of the levels."
    file_levels = file.levels("respond")
    if not file_levels:
        return f"{file.name} has no prompt for messages (task_solving)."
    draft.select("Level of the file", "own_level", file_levels, help="The levels under task_solving")
    rest = [word for word, kind in (("judges", "judge"), ("memory", "memory")) if file.levels(kind)]
    also = f", which has prompts for {' and '.join(rest)} too" if rest else ""
    safe.inline(f"From {file.name}{also}.", muted=True)
    if draft.get("reference"):
        if not file.biography:
            safe.inline("It has no biography: name, sex, address and age stand in our own sentences.", muted=True)
    elif file.levels("judge"):
        draft.toggle(
            "Judges that are models read with the file's wording",
            "own_judge",
            help="The first level of its adversary_reveal; numbers are then not comparable to those of the usual one",
        )
    return ""


def prompt_file(draft: Draft) -> PromptFile | None:
    """Return the uploaded file, or None. Raises SeedError for an invalid one."""
    name, content = draft.get("prompt_file") or ("", None)
    return None if content is None else read_uploaded(content, str(name), read_prompt_file)


def _memory(store: Store, draft: Draft, data: list[DatasetRow]) -> str:
    kind = draft.select(
        "What the assistant holds",
        "memory",
        MEMORIES,
        help="Which of the user's attributes the model sees in each context (the paper's Figure 5 varies K). The "
        "others are no flows; a memory system stores them all.",
    )
    if kind == SYSTEM:
        return draw_system(draft)
    if kind != FULL:
        least, usual = (1, 50) if kind == RANDOM else (0, 20)
        help = "With the same seed, a smaller K is a subset of a larger one. To compare several K, make a sweep."
        draft.integer("K", "k", usual, least, 100_000, help=help)
    dataset = next(row for row in data if row.name == draft.get("dataset"))
    if kind in (NECESSARY, INAPPROPRIATE) and default_labelling(store, dataset.id) is None:
        page.notice(
            "This memory needs labels, and the dataset has none. Label it first, or choose all attributes or a random "
            "memory."
        )
        url.page_link("labels", "Label the dataset", icon=":material/label:", dataset=dataset.id)
        return "This memory needs labels, and the dataset has none."
    return ""


def _sessions(draft: Draft) -> None:
    # The authors' settings take no earlier messages.
    if draft.get("reference"):
        return
    help = SETTINGS["sessions"].setting.help
    if draft.select("Sessions", "sessions", SESSIONS, help=help) == LAST:
        draft.integer("Messages kept", "sessions_last", 3, 1, 9999, help="How many of the latest messages")


def recommended(draft: Draft) -> tuple[Sampling, ...]:
    """Return the settings that the makers of the chosen model recommend, for the chosen thinking if that matters; one
    or none."""
    preset = preset_of(draft)
    if preset is None:
        return ()
    thinking = draft.get("thinking", "default")
    thinks = {"on": True, "off": False}.get(thinking, preset.thinking.default == "on" if preset.thinking else None)
    return tuple(s for s in preset.sampling if s.thinking is None or thinks is None or s.thinking == thinks)[:1]


def _sampling(draft: Draft) -> str:
    advice = recommended(draft)
    options = {way: text for way, text in SAMPLINGS.items() if advice or way != MAKERS}
    help = "Model defaults send no sampling fields. Anything else is recorded as sent."
    how = draft.select("Sampling", "sampling", options, help=help)
    if how == MAKERS and advice:
        values = ", ".join(f"{name} {value}" for name, value in advice[0].values.items())
        safe.inline(f"{values} ({advice[0].source})", muted=True)
    elif how == VALUES:
        one, two = st.columns(2)
        with one:
            draft.optional(
                "Temperature", "temperature", None, 0.0, 2.0, step=0.1, format="%.2f", placeholder="default",
                help="0 always picks the likeliest token",
            )  # fmt: skip
        with two:
            draft.optional(
                "Top p", "top_p", None, 0.0, 1.0, step=0.05, format="%.2f", placeholder="default",
                help="Only the likeliest tokens that add up to this share",
            )  # fmt: skip
        help = "A JSON object. Its fields are added to every request."
        draft.text("Other fields", "fields", placeholder='{"top_k": 20, "min_p": 0}', help=help)
        try:
            run_judges.fields_of(draft.get("fields"))
        except StoreError as problem:
            return sentence(problem)
    return ""


# ---- the run as filled in


def filled(draft: Draft) -> dict[str, Any]:
    """Return the entries of the settings that decide which others are asked for, and of those drawn by group."""
    given = values(draft, RunSpec, SETTINGS.keys() - DRAWN_APART)
    # The authors' settings take no earlier messages: the field is not shown, but may have been filled in before.
    sessions = "" if draft.get("reference") else draft.get("sessions", "")
    memory = draft.get("memory", FULL)
    if memory == SYSTEM:
        memory = label(draft)
    elif memory != FULL:
        memory += f"{'-' if memory == RANDOM else '+'}{int(draft.get('k', 0))}"
    address = chosen(draft).base_url
    return given | {
        "assistant": address.removeprefix(ASSISTANT) if is_assistant(address) else SETTINGS["assistant"].default,
        "memory": memory,
        "sessions": f"last-{int(draft.get('sessions_last', 3))}" if sessions == LAST else sessions or None,
        "name": str(given["name"] or "").strip() or None,
    }


def spec_of(draft: Draft, data: list[DatasetRow]) -> RunSpec:
    """Return the entered run. Raises StoreError, SeedError or CompositionError for a missing or invalid entry."""
    model, preset = chosen(draft), preset_of(draft)
    row = next((row for row in data if row.name == draft.get("dataset")), None)
    if row is None:
        raise StoreError(f"the dataset '{draft.get('dataset')}' no longer exists: go back and choose another.")
    # Fields that the paper's own settings fix keep their entries in the draft; those are not part of the run.
    served = is_assistant(model.base_url)
    reference = bool(draft.get("reference")) and not served
    level, file = "base" if served else str(draft.get("level") or "base"), None
    left_out = BY_REFERENCE if reference else ()
    given = {name: value for name, value in filled(draft).items() if name not in left_out}
    judges: dict[str, Any] = {}
    if level == OWN:
        if (file := prompt_file(draft)) is None:
            raise StoreError("no prompt file is chosen: go back and choose one, or a level.")
        level = str(draft.get("own_level") or file.levels("respond")[0])
        if not reference:
            given["prompts"] = file.prompts(level, str(draft.get("memory_template") or "bullets"))
            if draft.get("own_judge") and file.levels("judge"):
                judges["prompt"] = file.prompt("judge", file.levels("judge")[0])
    sampling = DEFAULTS if served else draft.get("sampling", DEFAULTS)
    if sampling == MAKERS:
        given["sampling"] = dict(next((advice.values for advice in recommended(draft)), {}))
    elif sampling == VALUES:
        given["temperature"] = draft.get("temperature")
        given["sampling"] = run_judges.fields_of(draft.get("fields"))
        if draft.get("top_p") is not None:
            given["sampling"] |= {"top_p": float(draft.get("top_p"))}
    profiles, contexts = (draft.get(f"{what}.{row.id}") for what in ("profiles", "contexts"))
    spec = RunSpec(
        **RunSpec.applicable(given),
        dataset=row.name,
        model=model.model,
        base_url=model.base_url,
        samples=draft.get("samples", SETTINGS["samples"].default),
        profiles=None if profiles == row.profiles else profiles,
        contexts=None if contexts == row.contexts else contexts,
        api_key_env=model.key_env,
        prompt_level=level,
        preset=preset.key if preset else None,
        prices=prices(draft, "model"),
        memory_prices=prices(draft, "memory") if _asked_by_memory(draft) else None,
        cap=draft.get("cap") or None,
        judges=tuple(
            judge.replace(**judges, prices=prices(draft, f"judge.{judge.model}")) if judge.kind == "llm" else judge
            for judge in run_judges.specs(draft, model.base_url, model.key_env, model.model)
        ),
    )
    return as_reference(spec, file) if reference else spec


def _asked_by_memory(draft: Draft) -> str:
    """Return the model that the memory system asks, if it is another than the one under test; else ''."""
    system = read_composition(label(draft)).system if draft.get("memory") == SYSTEM else None
    return system.asks[0] if system and system.asks and system.asks[0] != chosen(draft).model else ""


# ---- step 3: the plan


ASKED_SECONDS = 30


def draw_plan(store: Store, draft: Draft, data: list[DatasetRow]) -> None:
    """Draw the plan, its cost, the button that starts it, and below that its power, which takes time."""
    costed = _draw_cost(store, draft, data)
    engine = draw_engine(store, draft) if costed else None
    draft.keep()
    # Wide: a problem at the start is shown below its button.
    back, start = st.columns([1, 10], vertical_alignment="center")
    with back:
        _back(draft, PLAN)
    if costed is None:
        return
    spec, estimated = costed

    def started(run_id: str) -> None:
        draft.put("step", MODEL)  # the first step of the next run
        show_run(run_id)

    if engine is not None:
        with start:
            require = None if allow_too_long("run_new", estimated) else require_fit
            start_button(
                store,
                "Start the run",
                lambda: plan(store, spec, find_labels=effective_labels, require=require),
                started,
                icon=":material/play_arrow:",
                key="run_new.start",
                engine=engine,
            )
    draw_power(store, draft, spec, next(row for row in data if row.name == spec.dataset), estimated)


def _draw_cost(store: Store, draft: Draft, data: list[DatasetRow]) -> tuple[RunSpec, Estimate] | None:
    """Draw the plan and its cost; None if it cannot be planned, which is shown."""
    left, right = st.columns([2, 3], gap="large")
    try:
        with right:
            model = chosen(draft)
            asked = [("model", model.model)]
            judges = run_judges.specs(draft, model.base_url, model.key_env, model.model)
            models = dict.fromkeys(judge.model for judge in judges if judge.kind == "llm")
            asked += [(f"judge.{name}", f"{name} (judge)") for name in models]
            if other := _asked_by_memory(draft):
                asked.append(("memory", f"{other} (memory system)"))
            draw_prices(draft, asked)
        spec = spec_of(draft, data)
        with left:
            safe.show(safe.facts(facts(spec)))
            apart = dict.fromkeys(("prices", "memory_prices", "cap"), lambda: None)
            draw_group(draft, RunSpec, Group.PLAN, given=lambda: filled(draft), own=apart)
        with st.spinner("Counting calls"):
            estimated = estimate(store, spec, find_labels=effective_labels, look_up=look_up_once)
    except PROBLEMS as problem:
        page.error("This run cannot be planned yet.", sentence(problem))
        return None
    with right:
        show(estimated)
    return spec, estimated


@st.cache_data(ttl=ASKED_SECONDS, max_entries=200, show_spinner=False)
def look_up_once(
    base_url: str, key_env: str, model: str, samples: int, wants_schema: bool, seed: int | None, fields: str = "{}"
) -> Server:
    """Return a server's abilities, asked rarely, since the page is drawn at every change of a field."""
    # Without retries: the user is waiting for the page.
    return look_up(base_url, key_env, model, samples, wants_schema, seed, fields, retries=0)


ALWAYS = ("dataset", "model", "samples", "prompt_level", "memory", "mitigation", "thinking", "max_tokens", "check")
SAID_ELSEWHERE = (
    "base_url",
    "api_key_env",
    "preset",
    "session_order",
    "session_seed",
    "name",
    "cap",
    "prices",
    "memory_prices",
)


def facts(spec: RunSpec) -> list[tuple[str, safe.Html | str]]:
    """Return the settings of a run in words: those that every run has, and those that are not the default."""
    where = page.simulated_badge() if spec.base_url == SIMULATOR else f"at {spec.base_url}"
    texts: dict[str, safe.Html | str] = {"model": safe.join([f"{spec.model} ", where])}
    if spec.is_served:
        texts["model"] = spec.model or "the name that the assistant gives"
    if own := spec.prompts.get("respond"):
        texts["prompt_level"] = f"{spec.prompt_level}, from {own.source}"
    if spec.remembered:
        texts["sessions"] = spec.remembered.text
    shown: list[tuple[str, safe.Html | str]] = []
    if spec.reference:
        shown.append(("Settings", f"the paper's own, biography of {spec.reference.source}"))
    for name, item in SETTINGS.items():
        value = getattr(spec, name)
        if name in SAID_ELSEWHERE or not spec.applies(name) or (name not in ALWAYS and value == item.default):
            continue
        text = item.setting.labels.get(str(value), str(value))
        if value is None:
            text = item.setting.placeholder
        elif value is True:
            text = "on"
        elif isinstance(value, Mapping):
            text = ", ".join(f"{field} {part}" for field, part in value.items())
        shown.append((item.setting.title, texts.get(name, text)))
    judges = [
        ("matcher" if judge.kind != "llm" else judge.model)
        + (" (the model under test)" if (judge.model, judge.base_url) == (spec.model, spec.base_url) else "")
        + (f" on {judge.channel.in_words}" if judge.channel != Channel.MESSAGE else "")
        for judge in spec.judges
    ]
    return [*shown, ("Judges", ", ".join(judges))]
