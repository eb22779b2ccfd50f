"""A new run in three steps: the model, the experiment, the plan. What was filled in stays when going back."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from cimemories.evaluation.compositions import read_composition
from cimemories.evaluation.estimates import Estimate, estimate, require_fit
from cimemories.evaluation.planning import (
    MESSAGE_TOKENS,
    THINKING,
    JudgeSpec,
    Memory,
    RunSpec,
    as_reference,
    look_up,
    plan,
)
from cimemories.evaluation.sessions import ALL, Sessions, read_sessions
from cimemories.flows.labels import default_labelling
from cimemories.labels.whatif import effective_labels
from cimemories.llm.capabilities import Server
from cimemories.llm.engines import Engine
from cimemories.seeds.presets import Sampling
from cimemories.seeds.prompts import Prompt, PromptFile, levels, read_prompt_file
from cimemories.seeds.reading import LARGEST_FILE, SeedError, read_uploaded
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.text import count, sentence
from cimemories.ui import page, safe, url
from cimemories.ui.annotator import Draft
from pages.evaluate import run_judges
from pages.evaluate.run_detail import PROBLEMS, show_run, start_button
from pages.evaluate.run_engine import draw_engine
from pages.evaluate.run_estimate import allow_too_long, draw_power, draw_prices, prices, show
from pages.evaluate.run_memory import SYSTEM, contradicts, draw_system, label, memory_lines
from pages.evaluate.run_model import Chosen, chosen, draw_model, is_simulated, preset_of

# ---- step 2: the experiment


OWN = "own"
LEVELS = {
    "base": "base: the task alone",
    "light": "light: one sentence about privacy",
    "medium": "medium: what not to share",
    "high": "high: strictest",
    OWN: "your own file",
}
FULL, NECESSARY, INAPPROPRIATE, RANDOM = "full", "necessary", "inappropriate", "random"
MEMORIES = {
    FULL: "all attributes",
    NECESSARY: "all necessary and K inappropriate",
    INAPPROPRIATE: "all inappropriate and K necessary",
    RANDOM: "K random attributes",
    SYSTEM: "what a memory system recalls",
}
BY_LABELS = (NECESSARY, INAPPROPRIATE)
ORDERS = {"fixed": "as in the profile", "shuffled": "shuffled by the seed"}
LAST = "last"
SESSIONS = {"": "none: each task starts from scratch", ALL: "all earlier messages", LAST: "the last N earlier messages"}
TASK_ORDERS = {"fixed": "as in the dataset", "shuffled": "shuffled by the seed"}
DEFAULTS, MAKERS, VALUES = "defaults", "makers", "values"
SAMPLINGS = {
    DEFAULTS: "model defaults",
    MAKERS: "recommended by its makers",
    VALUES: "custom",
}
MITIGATIONS = {
    "none": "none",
    "gate": "gate: first ask which memories the task needs",
    "rewrite": "rewrite: remove what the recipient should not know",
}
LIMIT_HELP = (
    "For one message, reasoning included. A message that is cut off counts as missing, so reasoning models need more, "
    "such as 8192. Leave empty to use the server's limit."
)
THOUGHTS = {
    "default": "model default",
    "on": "on",
    "off": "off",
    "low": "low (reasoning_effort)",
    "medium": "medium (reasoning_effort)",
    "high": "high (reasoning_effort)",
}


def draw_experiment(store: Store, draft: Draft, data: list[DatasetRow]) -> str:
    """Draw the step; what is still missing or does not go together, in words."""
    model = chosen(draft)
    run_judges.reference(draft)
    left, middle, right = st.columns(3, gap="large")
    with left:
        safe.heading("Task")
        dataset, *_ = draw_dataset(draft, data)
        missing = _prompt(draft)
    with middle:
        safe.heading("Memory")
        missing = _experiment_memory(store, draft, dataset) or missing
    with right:
        safe.heading("Model settings")
        missing = _experiment_sampling(draft) or missing
    safe.heading("Judges")
    simulated = is_simulated(draft)
    first = (run_judges.SIMULATED,) if simulated else (run_judges.ITSELF, run_judges.MATCHER)
    run_judges.draw_judges(draft, simulated=simulated, first=first, model=model.model)
    with st.columns([1, 2])[0]:
        run_judges.check(draft)
    return missing or contradicts(draft) or _experiment_judges(draft, model)


def _experiment_judges(draft: Draft, model: Chosen) -> str:
    try:
        judges = run_judges.specs(draft, model.base_url, model.key_env, model.model)
    except StoreError as problem:
        return sentence(problem)
    if draft.get("check") == "model" and all(judge.kind != "llm" for judge in judges):
        return "The task check uses the first judge's model, and no judge is a model. Add one, or check by rules."
    return ""


def draw_dataset(draft: Draft, data: list[DatasetRow]) -> tuple[DatasetRow, int, int, int]:
    """The fields for a dataset, and how many of its profiles and contexts and how many samples; returns all four."""
    by_name = {row.name: row for row in data}
    help = "Its profiles are the users that messages are written for"
    row = by_name[draft.select("Dataset", "dataset", list(by_name), help=help)]
    with st.container(key=f"amounts_{draft.name}"):  # named for ui/safe.py
        one, two, three = st.columns(3)
    with one:
        most, help = max(row.profiles, 1), "How many, from the first on"
        profiles = draft.integer("Profiles", f"profiles.{row.id}", most, 1, most, help=help)
    with two:
        most, help = max(row.contexts, 1), "How many, from the first on. A context is a task and its recipient."
        contexts = draft.integer("Contexts", f"contexts.{row.id}", most, 1, most, help=help)
    with three:
        help = "Messages per context. Violation@1 to @n are computed from them."
        samples = draft.integer("Samples n", "samples", 5, 1, 100, help=help)
    return row, profiles, contexts, samples


def _prompt(draft: Draft) -> str:
    known = dict.fromkeys((*levels("respond"), OWN))
    level = draft.select(
        "Prompt level",
        "level",
        {item: LEVELS.get(item, item) for item in known},
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
        # Kept as bytes: Streamlit forgets an upload when another step is drawn. Of one that is too large a byte more
        # than allowed, so that it is refused.
        draft.put("prompt_file", (upload.name, upload.getvalue()[: LARGEST_FILE + 1]))
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
    draft.select("Level of the file", "own_level", own, help="The levels under task_solving")
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
    """The file that was uploaded; None where there is none. Raises SeedError for one that cannot be used."""
    name, content = draft.get("prompt_file") or ("", None)
    return None if content is None else read_uploaded(content, str(name), read_prompt_file)


def _experiment_memory(store: Store, draft: Draft, dataset: DatasetRow) -> str:
    kind = draft.select(
        "What the assistant holds",
        "memory",
        MEMORIES,
        help="Which of the user's attributes the model sees in each context (the paper's Figure 5 varies K). The "
        "others are no flows; a memory system stores them all.",
    )
    if kind == SYSTEM:
        missing = draw_system(draft)
        memory_lines(draft)
        if not draft.get("reference"):
            _sessions(draft)
        return missing
    if kind != FULL:
        least, usual = (1, 50) if kind == RANDOM else (0, 20)
        help = "With the same seed, a smaller K is a subset of a larger one. To compare several K, make a sweep."
        draft.integer("K", "k", usual, least, 100_000, help=help)
    help = "The same for all contexts of a user, so that servers can cache the prefix"
    order = draft.select("Order", "order", ORDERS, help=help)
    if kind != FULL or order == "shuffled":
        help = "Decides which attributes are chosen, and the shuffled order"
        draft.integer("Memory seed", "memory_seed", 0, 0, 2**31 - 1, help=help)
    memory_lines(draft)
    if not draft.get("reference"):
        _sessions(draft)
    if kind in BY_LABELS and default_labelling(store, dataset.id) is None:
        page.notice(
            "This memory needs labels, and the dataset has none. Label it first, or choose all attributes or a random "
            "memory."
        )
        url.page_link("labels", "Label the dataset", icon=":material/label:", dataset=dataset.id)
        return "This memory needs labels, and the dataset has none."
    return ""


def _sessions(draft: Draft) -> None:
    help = (
        "Whether the assistant's own messages of earlier tasks are in the memory of the next one. A user's tasks are "
    )
    help += "then written one after the other, and the prompts grow."
    kept = draft.select("Sessions", "sessions", SESSIONS, help=help)
    if kept == LAST:
        draft.integer("Messages kept", "sessions_last", 3, 1, 9999, help="How many of the latest messages")
    if kept:
        order = draft.select("Order of the tasks", "session_order", TASK_ORDERS, help="Another one for each user")
        if order == "shuffled":
            draft.integer("Task seed", "session_seed", 0, 0, 2**31 - 1, help="Decides the shuffled order of the tasks")


def _spec_sessions(draft: Draft) -> Sessions | None:
    kept = draft.get("sessions", "")
    # The authors' settings take no earlier messages: the field is not shown, but may have been filled in before.
    if not kept or draft.get("reference"):
        return None
    order = draft.get("session_order", "fixed")
    seed = int(draft.get("session_seed", 0)) if order == "shuffled" else 0
    return read_sessions(kept if kept == ALL else f"last-{int(draft.get('sessions_last', 3))}", order, seed)


def recommended(draft: Draft) -> tuple[Sampling, ...]:
    """What the makers of the chosen model recommend, for the thinking that is chosen where that matters."""
    preset = preset_of(draft)
    if preset is None:
        return ()
    thinking = draft.get("thinking", "default")
    thinks = {"on": True, "off": False}.get(thinking, preset.thinking.default == "on" if preset.thinking else None)
    return tuple(s for s in preset.sampling if s.thinking is None or thinks is None or s.thinking == thinks)[:1]


def _experiment_sampling(draft: Draft) -> str:
    draft.select(
        "Thinking",
        "thinking",
        {item: THOUGHTS.get(item, item) for item in THINKING},
        "default",
        help="For models that reason first. Reasoning is kept apart from the message and judged only if a judge reads "
        "it too.",
    )
    advice = recommended(draft)
    options = {way: text for way, text in SAMPLINGS.items() if advice or way != MAKERS}
    help = "Model defaults send no sampling fields. Anything else is recorded as sent."
    how = draft.select("Sampling", "sampling", options, help=help)
    missing = ""
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
        draft.text(
            "Other fields",
            "fields",
            placeholder='{"top_k": 20, "min_p": 0}',
            help="A JSON object. Its fields are added to every request.",
        )
        try:
            run_judges.fields_of(draft.get("fields"))
        except StoreError as problem:
            missing = sentence(problem)
    if draft.get("reference"):
        run_judges.set_by_reference(draft, "Mitigation", "mitigation", MITIGATIONS["none"])
        one, two = st.columns(2)
        with one:
            run_judges.set_by_reference(draft, "Token limit per message", "max_tokens", run_judges.SERVERS)
        with two:
            run_judges.set_by_reference(draft, "Seed", "seed", "none")
    else:
        help = "A defence to compare with the plain model. Each adds one call per message."
        draft.select("Mitigation", "mitigation", MITIGATIONS, help=help)
        one, two = st.columns(2)
        with one:
            run_judges.token_limit(draft, "max_tokens", MESSAGE_TOKENS, help=LIMIT_HELP)
        with two:
            help = "Sent with each request if the server accepts it. Leave empty in most cases: some servers refuse it."
            draft.optional("Seed", "seed", None, 0, 2**31 - 1, placeholder="none", help=help)
    help = "For the first attempt at a request. Each retry doubles it."
    draft.integer("Request timeout (s)", "timeout", 120, 1, 3600, step=60, help=help)
    return missing


# ---- the run as filled in


def spec_of(draft: Draft, data: list[DatasetRow]) -> RunSpec:
    """The run as filled in. Raises StoreError, SeedError or CompositionError for what is missing or cannot be."""
    model = chosen(draft)
    names = [row.name for row in data]
    name = draft.get("dataset")
    if name not in names:
        raise StoreError(f"the dataset '{name}' no longer exists: go back and choose another.")
    row = data[names.index(name)]
    # What the paper's own settings set keeps in the draft what was chosen before, and is not a part of the run.
    reference = bool(draft.get("reference"))
    wording = None if reference else _judge_wording(draft)
    judges = [
        replace(judge, prompt=wording, prices=prices(draft, f"judge.{judge.model}")) if judge.kind == "llm" else judge
        for judge in run_judges.specs(draft, model.base_url, model.key_env, model.model)
    ]
    profiles, contexts = (draft.get(f"{what}.{row.id}") for what in ("profiles", "contexts"))
    prompts, level = _wording(draft)
    preset = preset_of(draft)
    sampling, temperature = _spec_sampling(draft)
    limit = MESSAGE_TOKENS if reference else draft.get("max_tokens", MESSAGE_TOKENS)
    memory = _spec_memory(draft)
    spec = RunSpec(
        dataset=str(name),
        model=model.model,
        base_url=model.base_url,
        samples=int(draft.get("samples", 5)),
        profiles=None if profiles in (None, row.profiles) else int(profiles),
        contexts=None if contexts in (None, row.contexts) else int(contexts),
        judge=judges[0],
        more_judges=tuple(judges[1:]),
        api_key_env=model.key_env,
        temperature=temperature,
        sampling=sampling,
        max_tokens=None if limit is None else int(limit),
        seed=None if reference or draft.get("seed") is None else int(draft.get("seed")),
        prompt_level=level,
        prompts={} if reference else prompts,
        memory=replace(memory, template="plain") if reference else memory,
        thinking=draft.get("thinking", "default"),
        mitigation="none" if reference else draft.get("mitigation", "none"),
        check=draft.get("check", "rules"),
        preset=preset.key if preset else None,
        timeout=float(draft.get("timeout", 120)),
        name=str(draft.get("name") or "").strip() or None,
        prices=prices(draft, "model"),
        cap=draft.get("cap") or None,
        fresh=bool(draft.get("fresh")),
        sessions=_spec_sessions(draft),
    )
    return as_reference(spec, prompt_file(draft) if draft.get("level") == OWN else None) if reference else spec


def composition_of(draft: Draft) -> str:
    """The label of the memory that was chosen."""
    kind = draft.get("memory", FULL)
    if kind == FULL:
        return FULL
    if kind == SYSTEM:
        return label(draft)
    number = int(draft.get("k", 0))
    return f"{kind}-{number}" if kind == RANDOM else f"{kind}+{number}"


def _judge_wording(draft: Draft) -> Prompt | None:
    file = prompt_file(draft) if draft.get("level") == OWN and draft.get("own_judge") else None
    return file.prompt("judge", file.levels("judge")[0]) if file and file.levels("judge") else None


def _wording(draft: Draft) -> tuple[dict[str, Prompt], str]:
    """Wording that the run brings along, and the level of its prompt."""
    level = str(draft.get("level") or "base")
    if level != OWN:
        return {}, level
    file = prompt_file(draft)
    if file is None:
        raise StoreError("no prompt file is chosen: go back and choose one, or a level.")
    own = str(draft.get("own_level") or file.levels("respond")[0])
    prompts = {"respond": file.prompt("respond", own)}
    template = str(draft.get("template") or "bullets")
    if template in file.levels("memory"):
        prompts["memory"] = file.prompt("memory", template)
    return prompts, own


def _spec_sampling(draft: Draft) -> tuple[dict[str, object], float | None]:
    how = draft.get("sampling", DEFAULTS)
    if how == MAKERS:
        advice = recommended(draft)
        return (dict(advice[0].values) if advice else {}), None
    if how != VALUES:
        return {}, None
    fields = run_judges.fields_of(draft.get("fields"))
    if draft.get("top_p") is not None:
        fields = {**fields, "top_p": float(draft.get("top_p"))}
    temperature = draft.get("temperature")
    return fields, None if temperature is None else float(temperature)


def _asked_by_memory(draft: Draft) -> str:
    """The model that the memory system asks, where it is another than the one under test; else empty."""
    system = read_composition(label(draft)).system if draft.get("memory") == SYSTEM else None
    return system.asks[0] if system and system.asks and system.asks[0] != chosen(draft).model else ""


def _spec_memory(draft: Draft) -> Memory:
    if draft.get("memory") == SYSTEM:
        own = prices(draft, "memory") if _asked_by_memory(draft) else None
        return Memory(label(draft), template=draft.get("template", "bullets"), prices=own)
    plain = draft.get("memory", FULL) == FULL and draft.get("order", "fixed") == "fixed"
    seed = 0 if plain else int(draft.get("memory_seed", 0))
    return Memory(composition_of(draft), draft.get("order", "fixed"), seed, draft.get("template", "bullets"))


# ---- step 3: the plan


ASKED_SECONDS = 30


def draw_plan(store: Store, draft: Draft, data: list[DatasetRow]) -> None:
    """What it is, what it costs, the button that starts it, and below that what it can show: whoever knows need not
    scroll, nor wait for it."""
    costed = _draw_cost(store, draft, data)
    engine = draw_engine(store, draft) if costed else None
    draft.keep()
    # Wide: what goes wrong at the start is said below its button.
    back, start = st.columns([1, 10], vertical_alignment="center")
    with back:
        _back(draft, PLAN)
    if costed is None:
        return
    spec, estimated = costed
    if engine is not None:
        with start:
            _draw_start(store, draft, spec, engine, allow_too_long("run_new", estimated))
    draw_power(store, draft, spec, next(row for row in data if row.name == spec.dataset), estimated)


def _draw_cost(store: Store, draft: Draft, data: list[DatasetRow]) -> tuple[RunSpec, Estimate] | None:
    """The plan and its cost; None where it cannot be planned, which is shown."""
    left, right = st.columns([2, 3], gap="large")
    try:
        with right:
            _money_fields(draft)
        spec = spec_of(draft, data).checked()
    except PROBLEMS as problem:
        page.error("This run cannot be planned yet.", sentence(problem))
        return None
    with left:
        safe.show(safe.facts(facts(spec)))
        draft.text("Name", "name", placeholder="model on dataset", help="Shown in tables")
        run_judges.ignore_recorded(draft)
    try:
        with st.spinner("Counting calls"):
            estimated = estimate(store, spec, find_labels=effective_labels, look_up=look_up_once)
    except PROBLEMS as problem:
        page.error("This run cannot be planned yet.", sentence(problem))
        return None
    with right:
        show(estimated)
    return spec, estimated


def _draw_start(store: Store, draft: Draft, spec: RunSpec, engine: Engine, too_long: bool) -> None:
    def started(run_id: str) -> None:
        draft.put("step", MODEL)  # where the next one begins
        show_run(run_id)

    start_button(
        store,
        "Start the run",
        lambda: plan(store, spec, find_labels=effective_labels, require=None if too_long else require_fit),
        started,
        icon=":material/play_arrow:",
        key="run_new.start",
        engine=engine,
    )


@st.cache_data(ttl=ASKED_SECONDS, max_entries=200, show_spinner=False)
def look_up_once(
    base_url: str, key_env: str, model: str, samples: int, wants_schema: bool, seed: int | None, fields: str = "{}"
) -> Server:
    """Return what a server can do, asked once in a while: the page is drawn at every change of a field."""
    # Without retries: the user is waiting for the page.
    return look_up(base_url, key_env, model, samples, wants_schema, seed, fields, retries=0)


def facts(spec: RunSpec) -> list[tuple[str, safe.Html | str]]:
    """What is asked for, in words."""
    memory = spec.memory.composition + (", shuffled" if spec.memory.order == "shuffled" else "")
    limits = [count(n, what) for n, what in ((spec.profiles, "profile"), (spec.contexts, "context")) if n]
    sent = dict(spec.sampling) | ({"temperature": spec.temperature} if spec.temperature is not None else {})
    judges = [
        _judge_name(spec, judge) + (" on reasoning" if judge.channel != "message" else "") for judge in spec.judges
    ]
    limit = (
        "with the server's token limit" if spec.max_tokens is None else f"of at most {count(spec.max_tokens, 'token')}"
    )
    own = spec.prompts.get("respond")
    badge = page.simulated_badge() if spec.base_url == "simulator" else ""
    reference = [("Settings", f"the paper's own, biography of {spec.reference.source}")] if spec.reference else []
    return [
        *reference,
        ("Model", safe.join([spec.model, f" at {spec.base_url} " if not badge else " ", badge])),
        ("Dataset", ", ".join([spec.dataset, *limits])),
        ("Prompt", f"{spec.prompt_level}, from {own.source}" if own else spec.prompt_level),
        ("Memory", f"{memory}, as {spec.memory.template}"),
        *([("Sessions", spec.sessions.text)] if spec.sessions else []),
        ("Thinking", spec.thinking),
        ("Sampling", ", ".join(f"{k} {v}" for k, v in sent.items()) or "model defaults"),
        ("Samples", f"{spec.samples}, {limit}"),
        ("Mitigation", str(spec.mitigation)),
        ("Judges", ", ".join(judges)),
        ("Task check", run_judges.CHECKS[spec.check]),
    ]


def _judge_name(spec: RunSpec, judge: JudgeSpec) -> str:
    if judge.kind != "llm":
        return "matcher"
    itself = (judge.model, judge.base_url) == (spec.model, spec.base_url)
    return f"{judge.model} (the model under test)" if itself else judge.model


def _money_fields(draft: Draft) -> None:
    """Prices of the model and of each judge that is a model, the currency and the cap; nothing for what is free."""
    model = chosen(draft)
    models = [("model", model.model)]
    judges = run_judges.specs(draft, model.base_url, model.key_env, model.model)
    models += [(f"judge.{name}", name) for name in dict.fromkeys(j.model for j in judges if j.kind == "llm")]
    models += [("memory", other)] if (other := _asked_by_memory(draft)) else []
    titles = {"model": "", "memory": " (memory system)"}
    draw_prices(draft, [(field, f"{name}{titles.get(field, ' (judge)')}") for field, name in models], "run")


# ---- the steps


MODEL, EXPERIMENT, PLAN = 1, 2, 3
STEPS = {MODEL: "1 Model", EXPERIMENT: "2 Experiment", PLAN: "3 Plan and start"}


def draw(store: Store, data: list[DatasetRow]) -> None:
    """The steps, and the one that stands."""
    draft = Draft("run_new")
    step = _stepper(draft)
    # A place of its own for each step: what another one has drawn is gone at once, not when this one is done.
    places = {number: st.empty() for number in STEPS}
    with places[step].container():
        if step == PLAN:
            draw_plan(store, draft, data)
        else:
            ready = draw_model(store, draft) if step == MODEL else draw_experiment(store, draft, data)
            _moves(draft, step, ready)
    draft.keep()


def _stepper(draft: Draft) -> int:
    """Where one is, and the way back; forward leads only the button below, which sees that all is there."""
    step = int(draft.get("step") or MODEL)
    parts: list[safe.Html | str] = []
    for number, title in STEPS.items():
        cls = "ci-chip" if number == step else "ci-chip ci-none"
        parts += [safe.tag("span", safe.tag("b", title) if number == step else title, cls=cls), " "]
    safe.show(safe.tag("div", *parts, cls="ci-line"))
    return step


def _moves(draft: Draft, step: int, ready: str) -> None:
    """Back and forward. ready: what is still missing; empty where nothing is."""
    columns = st.columns([1, 2, 8] if step > MODEL else [2, 9], vertical_alignment="center")
    if step > MODEL:
        with columns[0]:
            _back(draft, step)
    with columns[-2]:
        label = "To the experiment" if step == MODEL else "To the plan"
        if st.button(
            label, type="primary", icon=":material/arrow_forward:", disabled=bool(ready), key=f"run_new.forward.{step}"
        ):
            _go(draft, step + 1)
    with columns[-1]:
        if ready:
            safe.inline(ready, muted=True)


def _back(draft: Draft, step: int) -> None:
    if st.button("Back", icon=":material/arrow_back:", key="run_new.back"):
        _go(draft, step - 1)


def _go(draft: Draft, step: int) -> None:
    draft.keep()
    draft.put("step", step)
    st.rerun()
