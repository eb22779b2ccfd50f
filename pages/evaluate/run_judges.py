"""The judges of a run as form fields: several of them, models or the matcher, the reasoning, and the task check."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st

from cimemories.evaluation.spec import JUDGE_TOKENS, SIMULATED_JUDGE_TOKENS, JudgeSpec
from cimemories.llm.client import DEFAULT_KEY_ENV
from cimemories.llm.worker import SIMULATOR
from cimemories.store.engine import StoreError
from cimemories.ui import safe
from cimemories.ui.draft import Draft

SIM_JUDGE = "sim-judge"
MATCHER, SIMULATED, SAME, OTHER = "matcher", "simulated", "same", "other"
KINDS = {
    MATCHER: "Matcher, no model",
    SIMULATED: "Simulated judge",
    SAME: "Model on the same server",
    OTHER: "Model on another server",
}
MOST = 5
CHECKS = {
    "rules": "by rules (refusals, a handful of words)",
    "model": "by the first judge's model",
    "none": "not at all",
}


def draw(draft: Draft, *, simulated: bool, first: Sequence[str], same: bool = True, model: str = "") -> None:
    """Fields of all judges, one bordered row each.

    simulated: the messages are; only then a simulated judge may read them. first: kinds of the judges that stand there
    at first. same: the model under test has a server that a judge may be asked at; model: its name there.
    """
    options = [MATCHER, *([SAME] if same and not simulated else []), OTHER, *([SIMULATED] if simulated else [])]
    if draft.get("judges_first") != list(first):
        # Judges that were meant for another kind of model are not kept: one of them may be simulated.
        for i in draft.get("judges") or ():
            draft.put(f"judge.{i}.kind", None)
        draft.put("judges", list(range(len(first))))
        draft.put("judges_first", list(first))
    ids: list[int] = draft.get("judges")
    for place, i in enumerate(ids):
        with st.container(border=True):
            default = first[place] if place < len(first) and first[place] in options else MATCHER
            _judge(draft, i, options, default, _remover(draft, ids, i) if len(ids) > 1 else None, model)
    if len(ids) < MOST and st.button("Add a judge", icon=":material/add:", key=f"{draft.name}.judge.add"):
        draft.keep()
        draft.put("judges", [*ids, max(ids) + 1])
        st.rerun()


def _remover(draft: Draft, ids: list[int], gone: int) -> Callable[[], None]:
    def remove() -> None:
        draft.keep()
        draft.put("judges", [i for i in ids if i != gone])
        st.rerun()

    return remove


def _judge(
    draft: Draft, i: int, options: list[str], default: str, remove: Callable[[], None] | None, model: str
) -> None:
    name = f"judge.{i}"
    what, who, where, more, out = st.columns([3, 3, 5, 1.3, 0.7], vertical_alignment="bottom")
    with what:
        kind = st.selectbox(
            "Judge",
            options,
            format_func=KINDS.__getitem__,
            key=draft.key(f"{name}.kind", default, options),
            help="A model reads all attributes at once and says which the message gives away. The matcher finds their "
            "values word for word, costs nothing, and misses paraphrases.",
        )
    if kind in (SAME, OTHER):
        with who:
            st.text_input(
                "Judge model", key=draft.key(f"{name}.model", ""),
                placeholder=safe.option(model) if kind == SAME and model else "as its server names it",
                help="Best of another family than the model under test: kin judge kin mildly. Left empty on the same "
                "server: the model under test itself.",
            )  # fmt: skip
    if kind == OTHER:
        with where:
            left, right = st.columns(2)
            with left:
                st.text_input(
                    "Judge base URL",
                    key=draft.key(f"{name}.base_url", ""),
                    placeholder="http://localhost:8002/v1",
                    help="Any OpenAI-compatible server",
                )
            with right:
                st.text_input(
                    "Variable of its key",
                    key=draft.key(f"{name}.key_env", DEFAULT_KEY_ENV),
                    help="The name of an environment variable of this app; the key itself is never stored or shown",
                )
    if kind != MATCHER:
        with more, st.popover("More", icon=":material/tune:", width="stretch"):
            _more(draft, name, real=kind != SIMULATED)
    if remove is not None:
        with out:
            if st.button("", icon=":material/close:", key=f"{draft.name}.{name}.out", help="Leave this judge out"):
                remove()


def _more(draft: Draft, name: str, *, real: bool) -> None:
    st.toggle(
        "Read the reasoning too",
        key=draft.key(f"{name}.reasoning", default=False),
        help="As a second channel with numbers of its own; only where the server shows what the model thought",
    )
    st.number_input(
        "Attributes a call",
        1,
        100_000,
        value=None,
        placeholder="all at once",
        key=draft.key(f"{name}.split", None),
        help="Long lists can be split for judges that lose track; the parts are asked one after the other",
    )
    if real:
        st.number_input(
            "Token limit of a judgement",
            16,
            131_072,
            value=None,
            step=1024,
            placeholder="the server's",
            key=draft.key(f"{name}.max_tokens", JUDGE_TOKENS),
            help=f"Its reasoning included. {JUDGE_TOKENS:,} leaves room for judges that think first, and becomes half "
            "of the server's context where that is less. Empty: no limit is sent, the server's own holds.",
        )
        st.text_input(
            "Further fields of its requests",
            key=draft.key(f"{name}.fields", ""),
            placeholder='{"top_p": 0.9}',
            help="A JSON object; the temperature is 0 unless it says otherwise",
        )


def any_model(draft: Draft) -> bool:
    """Whether one of the judges as filled in is a model."""
    return any(draft.get(f"judge.{i}.kind", MATCHER) != MATCHER for i in draft.get("judges") or [])


def specs(draft: Draft, base_url: str, key_env: str, model: str = "") -> list[JudgeSpec]:
    """The judges as filled in, those of the reasoning behind the others. base_url, key_env, model: of the model under
    test, which judges on its server where no other name is given. Raises StoreError for what is missing or cannot be
    read."""
    found: list[JudgeSpec] = []
    thoughts: list[JudgeSpec] = []
    for place, i in enumerate(draft.get("judges") or [0], 1):
        spec = _spec(draft, f"judge.{i}", place, base_url, key_env, model)
        found.append(spec)
        if spec.kind != MATCHER and draft.get(f"judge.{i}.reasoning"):
            thoughts.append(replace(spec, channel="reasoning"))
    return [*found, *thoughts]


def _spec(draft: Draft, name: str, place: int, base_url: str, key_env: str, same: str) -> JudgeSpec:
    kind = draft.get(f"{name}.kind", MATCHER)
    if kind == MATCHER:
        return JudgeSpec()
    split = draft.get(f"{name}.split")
    limit = draft.get(f"{name}.max_tokens", JUDGE_TOKENS)
    if kind == SIMULATED:
        return JudgeSpec("llm", SIM_JUDGE, SIMULATOR, max_tokens=SIMULATED_JUDGE_TOKENS, split=split)
    model = str(draft.get(f"{name}.model") or "").strip() or (same if kind == SAME else "")
    url = base_url if kind == SAME else str(draft.get(f"{name}.base_url") or "").strip()
    key = key_env if kind == SAME else str(draft.get(f"{name}.key_env") or DEFAULT_KEY_ENV).strip()
    if not model or not url:
        raise StoreError(f"judge {place} needs {'a model' if not model else 'a base URL'}.")
    fields = fields_of(draft.get(f"{name}.fields"), place)
    return JudgeSpec("llm", model, url, key, None if limit is None else int(limit), split=split, fields=fields)


def fields_of(text: object, place: object = "") -> dict[str, object]:
    """Further fields of a request from a JSON object; none from an empty text. Raises StoreError for anything else."""
    if not str(text or "").strip():
        return {}
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        whose = f" of judge {place}" if place else ""
        raise StoreError(f'the further fields{whose} are no JSON object, such as {{"top_p": 0.9}}.')
    return found


def check(draft: Draft) -> None:
    """Whether messages do their task, and who says so."""
    st.selectbox(
        "Does a message do its task?",
        list(CHECKS),
        format_func=CHECKS.__getitem__,
        key=draft.key("check", "rules", list(CHECKS)),
        help="An empty or refusing message gives nothing away and must not shine as private. A model is asked once "
        "more for each message.",
    )
    if draft.get("check") == "model":
        safe.inline("One short call more for each message.", muted=True)
