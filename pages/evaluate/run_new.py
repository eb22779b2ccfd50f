"""A new run in three steps: the model, the experiment, the plan. What was filled in stays when going back."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from cimemories.evaluation.costs import Prices, money
from cimemories.evaluation.estimates import Estimate, StageEstimate, estimate
from cimemories.evaluation.planning import MESSAGE_TOKENS, THINKING, JudgeSpec, Memory, RunSpec, Server, look_up, plan
from cimemories.files import uploaded
from cimemories.flows import catalogue
from cimemories.flows.labels import default_labelling
from cimemories.flows.progress import in_words
from cimemories.labels.whatif import effective_labels
from cimemories.seeds.presets import Sampling
from cimemories.seeds.prompts import Prompt, PromptFile, levels, read_prompt_file
from cimemories.seeds.reading import LARGEST_FILE, SeedError
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError
from cimemories.text import count
from cimemories.ui import page, safe, url
from cimemories.ui.annotator import Draft
from pages.evaluate import run_judges
from pages.evaluate.run_detail import PROBLEMS, sentence, start
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
}
BY_LABELS = (NECESSARY, INAPPROPRIATE)
ORDERS = {"fixed": "as in the profile", "shuffled": "shuffled by the seed"}
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
    left, middle, right = st.columns(3, gap="large")
    with left:
        safe.heading("Task")
        dataset = _dataset(draft, data)
        missing = _prompt(draft)
    with middle:
        safe.heading("Memory")
        missing = _experiment_memory(store, draft, dataset) or missing
    with right:
        safe.heading("Model settings")
        missing = _experiment_sampling(draft) or missing
    safe.heading("Judges")
    simulated = is_simulated(draft)
    first = (run_judges.SIMULATED,) if simulated else (run_judges.SAME, run_judges.MATCHER)
    run_judges.draw_judges(draft, simulated=simulated, first=first, model=model.model)
    checks, _ = st.columns([1, 2])
    with checks:
        run_judges.check(draft)
    return missing or _experiment_judges(draft, model)


def _experiment_judges(draft: Draft, model: Chosen) -> str:
    try:
        judges = run_judges.specs(draft, model.base_url, model.key_env, model.model)
    except StoreError as problem:
        return sentence(problem)
    if draft.get("check") == "model" and all(judge.kind != "llm" for judge in judges):
        return "The task check uses the first judge's model, and no judge is a model. Add one, or check by rules."
    return ""


def _dataset(draft: Draft, data: list[DatasetRow]) -> DatasetRow:
    by_name = {row.name: row for row in data}
    name = st.selectbox(
        "Dataset",
        list(by_name),
        format_func=safe.option,
        key=draft.key("dataset", data[0].name, list(by_name)),
        help="Its profiles are the users that messages are written for",
    )
    row = by_name[name]
    one, two, three = st.columns(3)
    with one:
        st.number_input(
            "Profiles",
            1,
            max(row.profiles, 1),
            key=draft.number(f"profiles.{row.id}", max(row.profiles, 1), 1, max(row.profiles, 1)),
            help="How many, from the first on",
        )
    with two:
        st.number_input(
            "Contexts",
            1,
            max(row.contexts, 1),
            key=draft.number(f"contexts.{row.id}", max(row.contexts, 1), 1, max(row.contexts, 1)),
            help="How many, from the first on. A context is a task and its recipient.",
        )
    with three:
        st.number_input(
            "Samples n",
            1,
            100,
            key=draft.number("samples", 5, 1, 100),
            help="Messages per context. Violation@1 to @n are computed from them.",
        )
    return row


def _prompt(draft: Draft) -> str:
    known = [level for level in levels("respond") if level != OWN]
    level = st.selectbox(
        "Prompt level",
        [*known, OWN],
        format_func=lambda item: LEVELS.get(item, item),
        key=draft.key("level", "base", [*known, OWN]),
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
    if upload is not None and upload.size > LARGEST_FILE:
        page.error("This prompt file cannot be used.", f"It is larger than {LARGEST_FILE:,} bytes.")
        return "The prompt file cannot be used."
    if upload is not None:
        # Kept as bytes: Streamlit forgets an upload when another step is drawn.
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
    kept = draft.get("prompt_file")
    if not kept:
        return None
    name, content = kept
    with uploaded(content, str(name)) as path:
        try:
            return read_prompt_file(path)
        except SeedError as problem:
            # Without the temporary folder, which means nothing to whoever uploaded the file.
            raise SeedError(str(problem).replace(f"{path.parent}/", "")) from None


def _experiment_memory(store: Store, draft: Draft, dataset: DatasetRow) -> str:
    kind = st.selectbox(
        "What the assistant holds",
        list(MEMORIES),
        format_func=MEMORIES.__getitem__,
        key=draft.key("memory", FULL, list(MEMORIES)),
        help="Which of the user's attributes the model sees in each context (the paper's Figure 5 varies K). The "
        "others are no flows.",
    )
    if kind != FULL:
        least = 1 if kind == RANDOM else 0
        st.number_input(
            "K",
            least,
            100_000,
            key=draft.number("k", 50 if kind == RANDOM else 20, least, 100_000),
            help="With the same seed, a smaller K is a subset of a larger one. To compare several K, make a sweep.",
        )
    order = st.selectbox(
        "Order",
        list(ORDERS),
        format_func=ORDERS.__getitem__,
        key=draft.key("order", "fixed", list(ORDERS)),
        help="The same for all contexts of a user, so that servers can cache the prefix",
    )
    if kind != FULL or order == "shuffled":
        st.number_input(
            "Memory seed",
            0,
            2**31 - 1,
            key=draft.number("memory_seed", 0, 0, 2**31 - 1),
            help="Decides which attributes are chosen, and the shuffled order",
        )
    templates = list(levels("memory"))
    st.selectbox(
        "Attribute format",
        templates,
        format_func=lambda item: MEMORY_LINES.get(item, item),
        key=draft.key("template", "bullets", templates),
        help="How a memory statement is written in the prompt",
    )
    if kind in BY_LABELS and default_labelling(store, dataset.id) is None:
        page.notice(
            "This memory needs labels, and the dataset has none. Label it first, or choose all attributes or a random "
            "memory."
        )
        url.page_link("labels", "Label the dataset", icon=":material/label:", dataset=dataset.id)
        return "This memory needs labels, and the dataset has none."
    return ""


MEMORY_LINES = {
    "bullets": "- statement",
    "plain": "statement",
    "numbered": "1. statement",
    "keyed": "- key: statement",
    "grouped": "- [domain] statement",
}


def recommended(draft: Draft) -> tuple[Sampling, ...]:
    """What the makers of the chosen model recommend, for the thinking that is chosen where that matters."""
    preset = preset_of(draft)
    if preset is None:
        return ()
    thinking = draft.get("thinking", "default")
    thinks = {"on": True, "off": False}.get(thinking, preset.thinking.default == "on" if preset.thinking else None)
    return tuple(s for s in preset.sampling if s.thinking is None or thinks is None or s.thinking == thinks)[:1]


def _experiment_sampling(draft: Draft) -> str:
    st.selectbox(
        "Thinking",
        THINKING,
        format_func=lambda item: THOUGHTS.get(item, item),
        key=draft.key("thinking", "default", THINKING),
        help="For models that reason first. Reasoning is kept apart from the message and judged only if a judge reads "
        "it too.",
    )
    advice = recommended(draft)
    options = [DEFAULTS, *([MAKERS] if advice else []), VALUES]
    how = st.selectbox(
        "Sampling",
        options,
        format_func=SAMPLINGS.__getitem__,
        key=draft.key("sampling", DEFAULTS, options),
        help="Model defaults send no sampling fields. Anything else is recorded as sent.",
    )
    missing = ""
    if how == MAKERS and advice:
        safe.inline(f"{_values(advice[0].values)} ({advice[0].source})", muted=True)
    elif how == VALUES:
        one, two = st.columns(2)
        with one:
            st.number_input(
                "Temperature", 0.0, 2.0, value=None, step=0.1, format="%.2f", placeholder="default",
                key=draft.key("temperature", None), help="0 always picks the likeliest token",
            )  # fmt: skip
        with two:
            st.number_input(
                "Top p", 0.0, 1.0, value=None, step=0.05, format="%.2f", placeholder="default",
                key=draft.key("top_p", None), help="Only the likeliest tokens that add up to this share",
            )  # fmt: skip
        st.text_input(
            "Other fields",
            key=draft.key("fields", ""),
            placeholder='{"top_k": 20, "min_p": 0}',
            help="A JSON object. Its fields are added to every request.",
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
        help="A defence to compare with the plain model. Each adds one call per message.",
    )
    one, two = st.columns(2)
    with one:
        st.number_input(
            "Token limit", 16, 131_072, value=None, step=128, placeholder="the server's",
            key=draft.key("max_tokens", MESSAGE_TOKENS),
            help="For one message, reasoning included. A message that is cut off counts as missing, so reasoning "
            "models need more, such as 8192. Leave empty to use the server's limit.",
        )  # fmt: skip
    with two:
        st.number_input(
            "Seed", 0, 2**31 - 1, value=None, placeholder="none", key=draft.key("seed", None),
            help="Sent with each request if the server accepts it. Leave empty in most cases: some servers refuse it.",
        )  # fmt: skip
    st.number_input(
        "Timeout in seconds",
        1,
        3600,
        step=60,
        key=draft.number("timeout", 120, 1, 3600),
        help="For the first attempt at a request. Each retry doubles it.",
    )
    return missing


def _values(values: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in dict(values).items()) if isinstance(values, dict) else ""


# ---- the run as filled in


PRICES = ("prompt", "cached", "completion")


def spec_of(draft: Draft, data: list[DatasetRow]) -> RunSpec:
    """The run as filled in. Raises StoreError, SeedError or CompositionError for what is missing or cannot be."""
    model = chosen(draft)
    names = [row.name for row in data]
    name = draft.get("dataset")
    if name not in names:
        raise StoreError(f"the dataset '{name}' no longer exists: go back and choose another.")
    row = data[names.index(name)]
    judges = _spec_judges(draft, model)
    profiles, contexts = (draft.get(f"{what}.{row.id}") for what in ("profiles", "contexts"))
    wording, level = _wording(draft)
    preset = preset_of(draft)
    sampling, temperature = _spec_sampling(draft)
    limit = draft.get("max_tokens", MESSAGE_TOKENS)
    return RunSpec(
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
        seed=None if draft.get("seed") is None else int(draft.get("seed")),
        prompt_level=level,
        prompts=wording,
        memory=_spec_memory(draft),
        thinking=draft.get("thinking", "default"),
        mitigation=draft.get("mitigation", "none"),
        check=draft.get("check", "rules"),
        preset=preset.key if preset else None,
        timeout=float(draft.get("timeout", 120)),
        name=str(draft.get("name") or "").strip() or None,
        prices=prices(draft, "model"),
        cap=draft.get("cap") or None,
        fresh=bool(draft.get("fresh")),
    )


def composition_of(draft: Draft) -> str:
    """The label of the memory that was chosen."""
    kind = draft.get("memory", FULL)
    if kind == FULL:
        return FULL
    number = int(draft.get("k", 0))
    return f"{kind}-{number}" if kind == RANDOM else f"{kind}+{number}"


def prices(draft: Draft, field: str) -> Prices | None:
    """The prices of one model as entered; None where none was. A cached price that is left out is that of others."""
    given = {name: draft.get(f"price.{field}.{name}") for name in PRICES}
    if all(value is None for value in given.values()):
        return None
    prompt, completion = float(given["prompt"] or 0), float(given["completion"] or 0)
    # Without a price of their own cached tokens cost what others do, so the cost is not understated.
    cached = prompt if given["cached"] is None else float(given["cached"])
    text = f"{prompt}/{cached}/{completion} {str(draft.get('currency') or '').strip()}"
    return Prices.read(text)


def _spec_judges(draft: Draft, model: Chosen) -> list[JudgeSpec]:
    judges = run_judges.specs(draft, model.base_url, model.key_env, model.model)
    wording = _judge_wording(draft)
    judged = []
    for judge in judges:
        if judge.kind == "llm":
            own = prices(draft, f"judge.{judge.model}")
            judge = replace(judge, prompt=wording, prices=own)
        judged.append(judge)
    return judged


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


def _spec_memory(draft: Draft) -> Memory:
    plain = draft.get("memory", FULL) == FULL and draft.get("order", "fixed") == "fixed"
    seed = 0 if plain else int(draft.get("memory_seed", 0))
    return Memory(composition_of(draft), draft.get("order", "fixed"), seed, draft.get("template", "bullets"))


# ---- step 3: the plan


SUMMED = (
    "draws",
    "recorded",
    "requests",
    "requests_least",
    "prompt_tokens",
    "prompt_tokens_least",
    "cacheable",
    "completion_tokens",
)
ASKED_SECONDS = 30
PER = "Per million tokens"


def draw_plan(store: Store, draft: Draft) -> None:
    """What it is, what it costs, and the button that starts it."""
    data = catalogue.all_datasets(store)
    left, right = st.columns([2, 3], gap="large")
    try:
        with right:
            _money_fields(draft)
        spec = spec_of(draft, data).checked()
    except PROBLEMS as problem:
        page.error("This run cannot be planned yet.", sentence(problem))
        return
    with left:
        safe.show(safe.facts(facts(spec)))
        st.text_input(
            "Name",
            key=draft.key("name", ""),
            placeholder="model on dataset",
            help="Shown in tables",
        )
        st.toggle(
            "Ignore recorded answers",
            key=draft.key("fresh", default=False),
            help="Asks for every answer again, and pays for it, even if another run already has it. Resuming the run "
            "still reuses its own.",
        )
    try:
        with st.spinner("Counting calls"):
            estimated = estimate(store, spec, find_labels=effective_labels, look_up=look_up_once)
    except PROBLEMS as problem:
        page.error("This run cannot be planned yet.", sentence(problem))
        return
    with right:
        show(estimated)
    if st.button("Start the run", type="primary", icon=":material/play_arrow:", key="run_new.start"):
        draft.keep()
        # Before the start, which ends this run of the script where it succeeds: the next draft begins at step 1.
        draft.put("step", 1)
        start(store, lambda: plan(store, spec, find_labels=effective_labels))
        draft.put("step", 3)  # it was not started


@st.cache_data(ttl=ASKED_SECONDS, max_entries=200, show_spinner=False)
def look_up_once(base_url: str, key_env: str, model: str, samples: int, wants_schema: bool, seed: int | None) -> Server:
    """What a server says of itself, asked once in a while: the page is drawn at every change of a field."""
    # Without retries: somebody is waiting for the page.
    return look_up(base_url, key_env, model, samples, wants_schema, seed, retries=0)


def facts(spec: RunSpec) -> list[tuple[str, safe.Html | str]]:
    """What is asked for, in words."""
    memory = spec.memory.composition + (", shuffled" if spec.memory.order == "shuffled" else "")
    limits = [f"{n:,} {what}" for n, what in ((spec.profiles, "profiles"), (spec.contexts, "contexts")) if n]
    sent = dict(spec.sampling) | ({"temperature": spec.temperature} if spec.temperature is not None else {})
    judges = [
        ("matcher" if judge.kind != "llm" else judge.model) + (" on reasoning" if judge.channel != "message" else "")
        for judge in spec.judges
    ]
    own = spec.prompts.get("respond")
    badge = page.SIMULATED if spec.base_url == "simulator" else ""
    return [
        ("Model", safe.join([spec.model, f" at {spec.base_url} " if not badge else " ", badge])),
        ("Dataset", ", ".join([spec.dataset, *limits])),
        ("Prompt", f"{spec.prompt_level}, from {own.source}" if own else spec.prompt_level),
        ("Memory", f"{memory}, as {spec.memory.template}"),
        ("Thinking", spec.thinking),
        ("Sampling", ", ".join(f"{k} {v}" for k, v in sent.items()) or "model defaults"),
        ("Samples", f"{spec.samples}, {tokens_in_words(spec.max_tokens)}"),
        ("Mitigation", str(spec.mitigation)),
        ("Judges", ", ".join(judges)),
        ("Task check", run_judges.CHECKS[spec.check]),
    ]


def tokens_in_words(limit: int | None) -> str:
    return "with the server's token limit" if limit is None else f"of at most {limit:,} tokens"


def _money_fields(draft: Draft) -> None:
    """Prices of the model and of each judge that is a model, the currency and the cap; nothing for what is free."""
    model = chosen(draft)
    models = [("model", model.model)]
    judges = run_judges.specs(draft, model.base_url, model.key_env, model.model)
    models += [(f"judge.{name}", name) for name in dict.fromkeys(j.model for j in judges if j.kind == "llm")]
    key = f"{draft.name}.box.prices"
    # Its fields are made only while it is open; what was entered stays in the draft.
    box = st.expander("Prices and cap", icon=":material/payments:", key=key, on_change="rerun")
    if not box.open:
        return
    with box:
        safe.inline(
            "What you pay per million tokens. Without prices the cost is unknown. Leave them empty for a local server.",
            muted=True,
        )
        for field, name in models:
            title, *columns = st.columns([3, 2, 2, 2], vertical_alignment="bottom")
            with title:
                safe.inline(name if field == "model" else f"{name} (judge)")
            for column, part, label in zip(columns, PRICES, ("Prompt", "Cached prompt", "Completion"), strict=True):
                with column:
                    _price(draft, f"price.{field}.{part}", label)
        one, two, _ = st.columns([2, 2, 5])
        with one:
            st.text_input("Currency", key=draft.key("currency", ""), placeholder="USD", help="Display only")
        with two:
            st.number_input(
                "Cap",
                0.0,
                value=None,
                placeholder="none",
                key=draft.key("cap", None),
                help="The run stops once it has paid this much. Requests in flight are still paid, so the cap may be "
                "exceeded. Answers are kept, and you can resume with a higher cap. Needs all prices.",
            )


def _price(draft: Draft, field: str, label: str) -> None:
    st.number_input(
        safe.plain_label(label),
        0.0,
        value=None,
        placeholder="none",
        key=draft.key(field, None),
        help=PER,
        format="%.4g",
    )


def show(estimated: Estimate) -> None:
    """Calls by stage, then cost and time, then what they rest on."""
    titles = ("Calls", "Recorded", "Requests", "Prompt tokens", "Completion tokens", "Cost at most")
    rows = [safe.tag("tr", safe.tag("th", "Stage"), *(safe.tag("th", title, cls="ci-number") for title in titles))]
    several = len({stage.model for stage in estimated.stages}) > 1
    for stage in _merged(estimated):
        values = (
            count(stage.draws),
            count(stage.recorded),
            count(stage.requests),
            count(stage.prompt_tokens),
            ("" if stage.completion_known or not stage.requests else "at most ") + count(stage.completion_tokens),
            "no price" if stage.cost_most is None else money(stage.cost_most, estimated.currency),
        )
        name = stage.title + (f", {stage.model}" if several else "")
        cells = [safe.tag("td", value, cls="ci-number") for value in values]
        rows.append(safe.tag("tr", safe.tag("td", name), *cells))
    safe.show(safe.tag("table", *rows, cls="ci-grid"))
    safe.show(
        safe.facts(
            [
                ("Messages", f"{estimated.responses:,} in {estimated.places:,} pairs of profile and context"),
                ("Cost", estimated.cost_words),
                ("Time", _time(estimated)),
            ]
        )
    )
    if estimated.warning:
        page.notice(sentence(ValueError(estimated.warning)))
    for text in estimated.unreachable:
        page.notice(sentence(ValueError(text)))
    if estimated.cap_note:
        safe.inline(sentence(ValueError(estimated.cap_note)), muted=True)
    if estimated.assumptions and estimated.requests:
        assumptions = [
            safe.tag("div", f"{text[:1].upper()}{text[1:]}.", cls="ci-point") for text in estimated.assumptions
        ]
        safe.show(safe.tag("div", "Assumptions:", *assumptions, cls="ci-muted"))
    safe.inline("You can pause, cancel and resume the run at any time.", muted=True)


def _merged(estimated: Estimate) -> list[StageEstimate]:
    """The stages with those of one kind and model, from several cells of a sweep, as one."""
    by_kind: dict[tuple[str, str], StageEstimate] = {}
    for stage in estimated.stages:
        key = stage.kind, stage.model
        there = by_kind.get(key)
        if there is None:
            by_kind[key] = stage
            continue
        sums = {name: getattr(there, name) + getattr(stage, name) for name in SUMMED}
        known = there.completion_known and stage.completion_known
        by_kind[key] = replace(there, **sums, completion_known=known, prices=there.prices or stage.prices)
    return list(by_kind.values())


def _time(estimated: Estimate) -> str:
    if not estimated.requests:
        return "none: everything is already recorded"
    if estimated.seconds is None:
        return "unknown: no call of some kind is recorded yet"
    return f"about {in_words(estimated.seconds)}, with {estimated.concurrency} requests at once"


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
        if step == MODEL:
            ready = draw_model(store, draft)
        elif step == EXPERIMENT:
            ready = draw_experiment(store, draft, data)
        else:
            draw_plan(store, draft)
            ready = ""
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
            if st.button("Back", icon=":material/arrow_back:", key="run_new.back"):
                _go(draft, step - 1)
    if step == PLAN:
        return
    with columns[-2]:
        label = "To the experiment" if step == MODEL else "To the plan"
        if st.button(
            label, type="primary", icon=":material/arrow_forward:", disabled=bool(ready), key=f"run_new.forward.{step}"
        ):
            _go(draft, step + 1)
    with columns[-1]:
        if ready:
            safe.inline(ready, muted=True)


def _go(draft: Draft, step: int) -> None:
    draft.keep()
    draft.put("step", step)
    st.rerun()
