"""The judges of a run as form fields: several of them, models or the matcher, the reasoning, and the task check."""

from __future__ import annotations

import json
from collections.abc import Sequence

import streamlit as st

from cimemories.evaluation.spec import JUDGE_TOKENS, JudgeSpec
from cimemories.llm.endpoint import DEFAULT_KEY_ENV
from cimemories.llm.worker import SIMULATOR
from cimemories.store.engine import StoreError
from cimemories.ui import once, safe
from cimemories.ui.annotator import Draft

REFERENCE_SETS = (
    "Sets prompts in the published layout, memories as plain lines without a mark, the recipient in lower case, name, "
    "sex, address and age as sentences of the biography, no token limit, one request per sample, and judges at "
    "temperature 0 that read all attributes at once."
)
SIM_JUDGE = "sim-judge"
MATCHER, SIMULATED, ITSELF, SAME, OTHER = "matcher", "simulated", "itself", "same", "other"
JUDGE_KINDS = {
    MATCHER: "Matcher, no model",
    SIMULATED: "Simulated judge",
    ITSELF: "The model under test itself",
    SAME: "Other model on the same server",
    OTHER: "Model on another server",
}
KEY_HELP = "Name of an environment variable of this app. The key itself is never stored or shown."
MOST = 5
SERVERS = "the server's"


def reference(draft: Draft) -> bool:
    """The switch for the requests of the authors' own evaluation, and what it sets."""
    chosen = draft.toggle(
        "The paper's own settings", "reference", help="Requests in the form of the authors' own code: docs/runs.md"
    )
    if chosen:
        safe.inline(REFERENCE_SETS, muted=True)
    return chosen


def set_by_reference(draft: Draft, label: str, field: str, value: str) -> None:
    """A field that cannot be changed, with what the paper's own settings make of it. `label` must be a literal."""
    key = f"{draft.name}.reference.{field}"
    help = "Set by the paper's own settings"
    st.text_input(safe.plain_label(label), value, key=key, disabled=True, help=help)


def draw_judges(draft: Draft, *, simulated: bool, first: Sequence[str], same: bool = True, model: str = "") -> None:
    """Fields of all judges, one bordered row each.

    simulated: the messages are; only then a simulated judge may read them. first: kinds of the judges that stand there
    at first. same: the model under test has a server that a judge may be asked at; model: its name there.
    """
    options = [MATCHER, *([ITSELF, SAME] if same and not simulated else []), OTHER, *([SIMULATED] if simulated else [])]
    if draft.get("judges_first") != list(first):
        # Judges that were meant for another kind of model are not kept: one of them may be simulated.
        for i in draft.get("judges") or ():
            draft.put(f"judge.{i}.kind", None)
        draft.put("judges", list(range(len(first))))
        draft.put("judges_first", list(first))
    ids: list[int] = draft.get("judges")
    for number, i in enumerate(ids):
        with st.container(border=True, key=f"judge_line_{draft.name}_{i}".replace(".", "_")):  # named for ui/safe.py
            default = first[number] if number < len(first) and first[number] in options else MATCHER
            if _judge_line(draft, i, options, default, model, removable=len(ids) > 1):
                # Kept before the rerun, which ends this run of the script before the page would do so.
                draft.keep()
                draft.put("judges", [other for other in ids if other != i])
                st.rerun()
    if len(ids) < MOST:

        def added(judges: list[int]) -> None:
            draft.keep()
            draft.put("judges", judges)

        key = f"{draft.name}.judge.add"
        once.button("Add a judge", lambda: [*ids, max(ids) + 1], added, key=key, icon=":material/add:")


def _judge_line(draft: Draft, i: int, options: list[str], default: str, model: str, *, removable: bool) -> bool:
    """The fields of one judge. Returns whether it is to be removed."""
    name = f"judge.{i}"
    what, who, where, more, out = st.columns([3, 3, 5, 1.3, 0.7], vertical_alignment="bottom")
    with what:
        kind = draft.select(
            "Judge",
            f"{name}.kind",
            {option: JUDGE_KINDS[option] for option in options},
            default,
            help="A model reads all attributes and says which ones the message reveals. The matcher looks for their "
            "values verbatim: free, but it misses paraphrases.",
        )
    if kind == ITSELF:
        with who:
            st.text_input("Judge model", safe.option(model), key=f"{draft.name}.{name}.itself.{model}", disabled=True)
        with where:
            safe.inline("It may judge its own messages mildly. Choose a model of another family.", muted=True)
    if kind in (SAME, OTHER):
        with who:
            draft.text(
                "Judge model",
                f"{name}.model",
                placeholder="as its server names it",
                help="Use a model of another family: models may judge their own family mildly.",
            )
    if kind == OTHER:
        left, right = where.columns(2)
        with left:
            draft.text(
                "Judge base URL",
                f"{name}.base_url",
                placeholder="http://localhost:8002/v1",
                help="Any OpenAI-compatible server",
            )
        with right:
            draft.text("API key variable", f"{name}.key_env", DEFAULT_KEY_ENV, help=KEY_HELP)
    if kind != MATCHER:
        with more, st.popover("More", icon=":material/tune:", width="stretch"):
            _more(draft, name, real=kind != SIMULATED)
    return removable and out.button(
        "", icon=":material/close:", key=f"{draft.name}.{name}.out", help="Remove this judge"
    )


def _more(draft: Draft, name: str, *, real: bool) -> None:
    draft.toggle(
        "Judge the reasoning too",
        f"{name}.reasoning",
        help="Reported separately. Needs a server that returns the model's reasoning.",
    )
    if draft.get("reference"):
        set_by_reference(draft, "Attributes per call", f"{name}.split", "all at once")
        if real:
            set_by_reference(draft, "Token limit per judgement", f"{name}.max_tokens", SERVERS)
            _judge_fields(draft, name)
        return
    split_help = "Splits long lists for judges that lose track. Parts are requested in sequence."
    draft.optional("Attributes per call", f"{name}.split", None, 1, 100_000, placeholder="all at once", help=split_help)
    if real:
        draft.optional(
            "Token limit per judgement",
            f"{name}.max_tokens",
            JUDGE_TOKENS,
            16,
            131_072,
            step=1024,
            placeholder=SERVERS,
            help=f"Reasoning included. {JUDGE_TOKENS:,} leaves room for judges that reason first, and is lowered to "
            "half of a smaller context window. Leave empty to use the server's limit.",
        )
        _judge_fields(draft, name)


def _judge_fields(draft: Draft, name: str) -> None:
    draft.text(
        "Other request fields",
        f"{name}.fields",
        placeholder='{"top_p": 0.9}',
        help="A JSON object. The temperature is 0 unless set here.",
    )


def cost_cap(draft: Draft, what: str) -> float | None:
    """The field for the most that a run or sweep may cost."""
    help = (
        f"The {what} stops once it has paid this much. Requests in flight are still paid, so the cap may be exceeded. "
        "Answers are kept, and you can resume with a higher cap. Needs all prices."
    )
    return draft.optional("Cost cap", "cap", None, 0.0, placeholder="none", help=help)


def any_model(draft: Draft) -> bool:
    """Whether one of the judges as filled in is a model."""
    return any(draft.get(f"judge.{i}.kind", MATCHER) != MATCHER for i in draft.get("judges") or [])


def specs(draft: Draft, base_url: str, key_env: str, model: str = "") -> list[JudgeSpec]:
    """The judges as filled in, those of the reasoning behind the others. base_url, key_env, model: of the model under
    test, for a judge that is this model or on its server. Raises StoreError for what is missing or cannot be
    read."""
    messages: list[JudgeSpec] = []
    reasoning: list[JudgeSpec] = []
    for number, i in enumerate(draft.get("judges") or [0], 1):
        spec = _spec(draft, f"judge.{i}", number, base_url, key_env, model)
        messages.append(spec)
        if spec.kind != MATCHER and draft.get(f"judge.{i}.reasoning"):
            reasoning.append(spec.replace(channel="reasoning"))
    # The first of these is the run's own judge, whose word counts unless another is chosen: one that reads messages.
    return [*messages, *reasoning]


def _spec(draft: Draft, name: str, number: int, base_url: str, key_env: str, same: str) -> JudgeSpec:
    kind = draft.get(f"{name}.kind", MATCHER)
    if kind == MATCHER:
        return JudgeSpec()
    split = None if draft.get("reference") else draft.get(f"{name}.split")
    limit = draft.get(f"{name}.max_tokens", JUDGE_TOKENS)
    if kind == SIMULATED:
        return JudgeSpec(kind="llm", model=SIM_JUDGE, base_url=SIMULATOR, split=split)
    model = same if kind == ITSELF else str(draft.get(f"{name}.model") or "").strip()
    beside = kind in (ITSELF, SAME)
    url = base_url if beside else str(draft.get(f"{name}.base_url") or "").strip()
    key = key_env if beside else str(draft.get(f"{name}.key_env") or DEFAULT_KEY_ENV).strip()
    if not model or not url:
        raise StoreError(f"judge {number} needs {'a model' if not model else 'a base URL'}.")
    fields = fields_of(draft.get(f"{name}.fields"), number)
    return JudgeSpec(
        kind="llm",
        model=model,
        base_url=url,
        api_key_env=key,
        max_tokens=None if limit is None else int(limit),
        split=split,
        fields=fields,
    )


def fields_of(text: object, number: object = "") -> dict[str, object]:
    """Further fields of a request from a JSON object; none from an empty text. Raises StoreError for anything else."""
    if not str(text or "").strip():
        return {}
    try:
        fields = json.loads(str(text))
    # Brackets nested deep enough exhaust the parser's stack.
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        whose = f" of judge {number}" if number else ""
        raise StoreError(f'the other fields{whose} must be a JSON object, such as {{"top_p": 0.9}}.')
    return fields
