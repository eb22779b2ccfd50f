"""The judges in a form: several of them, models or the matcher."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import streamlit as st

from cimemories.evaluation.spec import JudgeSpec
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, SIMULATOR
from cimemories.store.engine import StoreError
from cimemories.ui import once, safe
from cimemories.ui.annotator import Draft
from pages.evaluate.run_settings import draw_field, draw_fixed

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
MOST = 5
SETTINGS = JudgeSpec.described()
BY_REFERENCE = {"split": "all at once", "max_tokens": SETTINGS["max_tokens"].setting.placeholder}


def reference(draft: Draft) -> bool:
    """Draw the switch for the requests of the authors' own evaluation, and the settings that it fixes."""
    chosen = draft.toggle(
        "The paper's own settings", "reference", help="Requests in the form of the authors' own code: docs/runs.md"
    )
    if chosen:
        safe.inline(REFERENCE_SETS, muted=True)
    return chosen


def draw_judges(
    draft: Draft, *, simulated: bool, first: Sequence[str] = (), same: bool = True, model: str = ""
) -> None:
    """Draw the fields of all judges, one bordered row each.

    simulated: the messages are; only then may a simulated judge read them. first: the initial kinds of the judges;
    empty for those of a new run. same: the model under test has a server that a judge may be asked at; model: its name
    there."""
    # A model judges beside the matcher, which misses paraphrases.
    first = list(first or ((SIMULATED,) if simulated else (ITSELF, MATCHER)))
    options = [MATCHER, *([ITSELF, SAME] if same and not simulated else []), OTHER, *([SIMULATED] if simulated else [])]
    if draft.get("judges_first") != first:
        # Judges that were meant for another kind of model are not kept: one of them may be simulated.
        for i in draft.get("judges") or ():
            draft.put(f"judge.{i}.kind", None)
        draft.put("judges", list(range(len(first))))
        draft.put("judges_first", first)
    ids: list[int] = draft.get("judges")
    for number, i in enumerate(ids):
        with st.container(border=True, key=f"judge_line_{draft.name}_{i}".replace(".", "_")):  # named for style.css
            default = first[number] if number < len(first) and first[number] in options else MATCHER
            if _judge(draft, f"judge.{i}", options, default, model, removable=len(ids) > 1):
                # Kept before the rerun, which ends this run of the script before the page would keep it.
                draft.keep()
                draft.put("judges", [other for other in ids if other != i])
                st.rerun()
    if len(ids) < MOST:

        def added(judges: list[int]) -> None:
            draft.keep()
            draft.put("judges", judges)

        key = f"{draft.name}.judge.add"
        once.button("Add a judge", lambda: [*ids, max(ids) + 1], added, key=key, icon=":material/add:")


def _judge(draft: Draft, name: str, options: list[str], default: str, model: str, *, removable: bool) -> bool:
    """Draw the fields of one judge. Returns whether to remove it."""
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
            draft.text("Judge model", f"{name}.model", placeholder="as its server names it",
                       help=SETTINGS["model"].setting.help)  # fmt: skip
    if kind == OTHER:
        for column, field in zip(where.columns(2), ("base_url", "api_key_env"), strict=True):
            with column:
                draw_field(draft, SETTINGS[field], f"{name}.{field}")
    if kind != MATCHER:
        with more, st.popover("More", icon=":material/tune:", width="stretch"):
            draft.toggle(
                "Judge the reasoning too",
                f"{name}.reasoning",
                help="Reported separately. Needs a server that returns the model's reasoning.",
            )
            for field in ("split", "max_tokens") if kind != SIMULATED else ("split",):
                if draft.get("reference"):
                    draw_fixed(draft, SETTINGS[field], BY_REFERENCE[field], f"{name}.{field}")
                else:
                    draw_field(draft, SETTINGS[field], f"{name}.{field}")
            if kind != SIMULATED:
                help = "A JSON object. The temperature is 0 unless set here."
                draft.text("Other request fields", f"{name}.fields", placeholder='{"top_p": 0.9}', help=help)
    return removable and out.button(
        "", icon=":material/close:", key=f"{draft.name}.{name}.out", help="Remove this judge"
    )


def any_model(draft: Draft) -> bool:
    """Return whether one of the entered judges is a model."""
    return any(draft.get(f"judge.{i}.kind", MATCHER) != MATCHER for i in draft.get("judges") or [])


def specs(draft: Draft, base_url: str, key_env: str, model: str = "") -> list[JudgeSpec]:
    """Return the entered judges, those of the reasoning last. base_url, key_env, model: of the model under test, for a
    judge that is this model or on its server. Raises StoreError for missing or unreadable entries."""
    judges: list[JudgeSpec] = []
    reasoning: list[JudgeSpec] = []
    for number, i in enumerate(draft.get("judges") or [0], 1):
        name = f"judge.{i}"
        kind = draft.get(f"{name}.kind", MATCHER)
        if kind == MATCHER:
            judges.append(JudgeSpec())
            continue
        given: dict[str, Any] = {"split": None if draft.get("reference") else draft.get(f"{name}.split")}
        if kind == SIMULATED:
            given |= {"model": SIM_JUDGE, "base_url": SIMULATOR}
        else:
            beside = kind in (ITSELF, SAME)
            asked = model if kind == ITSELF else str(draft.get(f"{name}.model") or "").strip()
            url = base_url if beside else str(draft.get(f"{name}.base_url") or "").strip()
            if not asked or not url:
                raise StoreError(f"judge {number} needs {'a model' if not asked else 'a base URL'}.")
            given |= {
                "model": asked,
                "base_url": url,
                "api_key_env": key_env if beside else draft.get(f"{name}.api_key_env") or DEFAULT_KEY_ENV,
                "max_tokens": draft.get(f"{name}.max_tokens", SETTINGS["max_tokens"].default),
                "fields": fields_of(draft.get(f"{name}.fields"), number),
            }
        judges.append(JudgeSpec(kind="llm", **given))
        if draft.get(f"{name}.reasoning"):
            reasoning.append(judges[-1].replace(channel="reasoning"))
    # The first one counts by default, so it has to read messages.
    return [*judges, *reasoning]


def fields_of(text: object, number: object = "") -> dict[str, object]:
    """Return further fields of a request from a JSON object; none from an empty text. Raises StoreError for anything
    else."""
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
