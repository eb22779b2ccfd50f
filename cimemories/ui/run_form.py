"""The form of a new run: model, experiment, judge, and what it will come to, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from cimemories.ui import safe

SIMULATED_MODELS = ("sim-average", "sim-careful", "sim-oversharing")
JUDGE_TOKENS = 2048
MATCHER, SAME, OTHER = "Matcher (no model)", "Model on the same server", "Model on another server"


@dataclass(frozen=True)
class RunForm:
    """What was asked for. base_url '' is the simulator, judge_model '' the matcher."""

    dataset: str
    model: str
    base_url: str
    key_env: str
    samples: int
    profiles: int
    contexts: int
    temperature: float | None
    max_tokens: int
    timeout: float
    judge_model: str
    judge_base_url: str
    judge_key_env: str
    judge_max_tokens: int


def run_form(names: Sequence[str], sizes: Mapping[str, tuple[int, int]]) -> RunForm | None:
    """Draw the form; what was asked for in the run in which it is sent, else None. `sizes`: (profiles, contexts)."""
    where = st.segmented_control(
        "Where is the model?", ["Endpoint", "Simulator"], default="Endpoint", key="run_form.where", required=True
    )
    simulated = where == "Simulator"
    left, middle, right = st.columns(3)
    with left:
        model, base_url, key_env = _simulated() if simulated else _endpoint()
    with middle:
        dataset = st.selectbox("Dataset", names, format_func=safe.option, key="run_form.dataset")
        profiles_there, contexts_there = sizes[dataset]
        profiles = int(st.number_input("Profiles", 1, max(profiles_there, 1), value=max(profiles_there, 1)))
        contexts = int(st.number_input("Contexts", 1, max(contexts_there, 1), value=max(contexts_there, 1)))
        samples = int(
            st.number_input("Samples n", 1, 100, value=5, help="Messages a context; Violation@1 to @n follow from them")
        )
    with right:
        judge_model, judge_url, judge_key = _judge(simulated, base_url, key_env)
        judge_max_tokens = JUDGE_TOKENS
        if judge_model and not simulated:
            judge_max_tokens = int(
                st.number_input("Token limit of a judgement", 16, 65536, value=JUDGE_TOKENS, step=128)
            )
        max_tokens = int(st.number_input("Token limit of a message", 16, 65536, value=1024, step=128))
        temperature = st.number_input(
            "Temperature", 0.0, 2.0, value=None, step=0.1, placeholder="the model's default", format="%.2f"
        )
        timeout = float(
            st.number_input(
                "Patience in seconds", 1, 3600, value=120, step=60, help="Doubled by each retry of a request"
            )
        )
    answers = profiles * contexts * samples
    calls = f"{answers:,} messages" + (f" and {answers:,} judgements by a model" if judge_model else "")
    ready = bool(model.strip()) and (simulated or bool(base_url.strip()))
    safe.inline(f"This comes to {calls}. It can be cancelled and resumed at any time.", muted=True)
    if not st.button("Start the run", type="primary", icon=":material/play_arrow:", disabled=not ready):
        return None
    return RunForm(
        dataset=dataset,
        model=model.strip(),
        base_url="" if simulated else base_url.strip(),
        key_env=key_env.strip() or "OPENAI_API_KEY",
        samples=samples,
        profiles=profiles,
        contexts=contexts,
        temperature=temperature,
        max_tokens=max_tokens,
        timeout=timeout,
        judge_model=judge_model.strip(),
        judge_base_url=judge_url.strip(),
        judge_key_env=judge_key.strip() or "OPENAI_API_KEY",
        judge_max_tokens=judge_max_tokens,
    )


def _simulated() -> tuple[str, str, str]:
    model = st.selectbox("Model", SIMULATED_MODELS, key="run_form.simulated", help="Answers follow docs/simulator.md")
    st.caption("A simulated run shows how the tool works. Its numbers say nothing about any real model.")
    return str(model), "", ""


def _endpoint() -> tuple[str, str, str]:
    base_url = st.text_input(
        "Base URL", key="run_form.base_url", placeholder="http://localhost:8000/v1", help="Any OpenAI-compatible server"
    )
    model = st.text_input("Model", key="run_form.model", placeholder="as the server names it")
    key_env = st.text_input(
        "Variable that holds the key",
        value="OPENAI_API_KEY",
        key="run_form.key_env",
        help="The name of an environment variable of this app; the key itself is never stored or shown",
    )
    return model, base_url, key_env


def _judge(simulated: bool, base_url: str, key_env: str) -> tuple[str, str, str]:
    """(model, base URL, key variable); an empty model is the matcher."""
    if simulated:
        kind = st.selectbox("Judge", ["sim-judge", MATCHER], key="run_form.sim_judge")
        return ("", "", "") if kind == MATCHER else ("sim-judge", "simulator", "")
    kind = st.selectbox("Judge", [MATCHER, SAME, OTHER], key="run_form.judge")
    if kind == MATCHER:
        return "", "", ""
    model = st.text_input("Judge model", key="run_form.judge_model")
    if kind == SAME:
        return model, base_url, key_env
    return (
        model,
        st.text_input("Judge base URL", key="run_form.judge_url"),
        st.text_input("Variable that holds its key", value="OPENAI_API_KEY", key="run_form.judge_key"),
    )
