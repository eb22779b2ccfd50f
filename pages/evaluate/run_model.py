"""Step 1 of a new run: where the model is, what is known of it, and whether it answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from cimemories.evaluation.planning import look_up
from cimemories.evaluation.spec import MESSAGE_TOKENS
from cimemories.llm.capabilities import Server
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, Endpoint, EndpointError
from cimemories.llm.worker import SIMULATOR
from cimemories.seeds.presets import Kind, Preset, load_presets
from cimemories.seeds.reading import SeedError
from cimemories.simulator.policy import SimulatorError
from cimemories.store.engine import Store
from cimemories.text import count, sentence, without_options
from cimemories.ui import page, safe, url
from cimemories.ui.annotator import Draft
from pages.evaluate import run_engine, run_servers
from pages.evaluate.run_judges import KEY_HELP

MANAGED, SERVED, ENDPOINT, SIMULATED = "managed", "served", "endpoint", "simulator"
PLACES = {
    MANAGED: "Managed vLLM server",
    SERVED: "vLLM for this run",
    ENDPOINT: "Endpoint",
    SIMULATED: "Simulator",
}
SIMULATED_MODELS = ("sim-average", "sim-careful", "sim-oversharing")
NO_PRESET = ""
OK = "ci-notice ci-ok"
SAMPLES_TRIED = 2  # the fewest that show whether one request can bring several
FORMS = {
    "json_schema": "It supports JSON schemas, which judges and gates rely on.",
    "json_object": "It does not support JSON schemas: judges and gates ask for JSON objects instead, and an answer "
    "that cannot be read counts as missing.",
    "none": "It supports no structured output: only the prompt asks for JSON, and an answer that cannot be read counts "
    "as missing.",
}


@dataclass(frozen=True)
class Chosen:
    """The model that is to be run: its name, where, and the variable of its key."""

    model: str
    base_url: str
    key_env: str

    @property
    def simulated(self) -> bool:
        return self.base_url == SIMULATOR


def presets() -> dict[str, Preset]:
    """What is known of models, by key; nothing where the file cannot be read."""
    try:
        return {item.key: item for item in load_presets()}
    except SeedError:
        return {}


def preset_of(draft: Draft) -> Preset | None:
    """The preset that was chosen, or that the name of a model that we serve is of."""
    known = presets()
    if draft.get("where") == ENDPOINT:
        return known.get(str(draft.get("preset") or ""))
    name = chosen(draft).model if draft.get("where") in (MANAGED, SERVED) else None
    return next((item for item in known.values() if item.name == name), None)


def chosen(draft: Draft) -> Chosen:
    """The model as filled in; texts may still be empty."""
    where = draft.get("where", ENDPOINT)
    if where == SIMULATED:
        return Chosen(str(draft.get("simulated") or SIMULATED_MODELS[0]), SIMULATOR, DEFAULT_KEY_ENV)
    if where == MANAGED:
        served = draft.get("managed") or ("", "")
        return Chosen(str(served[1]), str(served[0]), DEFAULT_KEY_ENV)
    if where == SERVED:
        name, address = draft.get("own") or ("", "")
        return Chosen(name, address, DEFAULT_KEY_ENV)
    url, key = _place(draft)
    return Chosen(str(draft.get("served" if _listed(draft) else "model") or "").strip(), url, key)


def _place(draft: Draft) -> tuple[str, str]:
    """Where the endpoint is and the variable of its key, as filled in."""
    return str(draft.get("base_url") or "").strip(), str(draft.get("key_env") or DEFAULT_KEY_ENV).strip()


def _listed(draft: Draft) -> tuple[str, ...]:
    """The models that this very server listed when it was tested; empty before, and where another name was typed."""
    where, names = draft.get("listed") or ("", ())
    return names if where == _place(draft) else ()


def draw_model(store: Store, draft: Draft) -> str:
    """Draw the step; what is still missing, in words."""
    served = run_servers.running(store)
    where = st.segmented_control(
        "Where is the model?",
        list(PLACES),
        format_func=PLACES.__getitem__,
        key=draft.key("where", MANAGED if served else ENDPOINT, list(PLACES)),
        required=True,
    )
    if where == MANAGED:
        _managed(draft, served)
    elif where == SERVED:
        draft.put("own", run_engine.draw_served(draft))
        return "" if chosen(draft).model else "Enter the model that vLLM is to serve."
    elif where == SIMULATED:
        _simulated(draft)
    else:
        _endpoint(draft)
    model = chosen(draft)
    if not model.base_url:
        if where == MANAGED:
            return "Start a server first, or choose Endpoint."
        return "" if where == SIMULATED else "Enter the base URL of the model's server."
    missing = _test(draft, model)
    if missing or model.model:
        return missing
    return "Choose one of the server's models." if _listed(draft) else "Enter the model's name, or test the connection."


def _managed(draft: Draft, served: list[run_servers.Served]) -> None:
    if not served:
        page.empty(
            "No managed server is ready",
            "Start one on the Servers tab. For a server that you started yourself, choose Endpoint.",
            _to_servers,
        )
        draft.put("managed", None)
        return
    options = [tuple(item) for item in served]
    st.selectbox(
        "Server",
        options,
        format_func=lambda item: safe.option(f"{item[1]} at {item[0]}"),
        key=draft.key("managed", options[0], options),
        help="Ready servers that this app or the command line started",
    )


def _to_servers() -> None:
    if st.button("Servers", icon=":material/dns:", key="run_new.servers"):
        url.put(tab="servers")
        st.rerun()


def _simulated(draft: Draft) -> None:
    with st.columns([1, 2])[0]:
        draft.select("Model", "simulated", SIMULATED_MODELS, help="How it answers is described in docs/simulator.md")
    st.caption("Simulated runs show how the tool works. Their numbers say nothing about any real model.")


def _endpoint(draft: Draft) -> None:
    known = presets()

    def fill() -> None:
        """A preset says what it knows; a field that was written by hand stays where it knows nothing."""
        preset = known.get(st.session_state.get(key, ""))
        draft.put("preset", preset.key if preset else NO_PRESET)
        if preset is None:
            return
        draft.put("model", preset.name)
        draft.put("key_env", preset.api_key_env or DEFAULT_KEY_ENV)
        # The address typed before may be right for a local model, and is another server's for any other.
        draft.put("base_url", preset.base_url or (draft.get("base_url") if preset.kind == Kind.LOCAL else ""))

    left, middle, right, last = st.columns([3, 4, 3, 3])
    with left:
        key = draft.key("preset", NO_PRESET, [NO_PRESET, *known])
        st.selectbox(
            "Preset",
            [NO_PRESET, *known],
            format_func=lambda item: safe.option(known[item].title) if item in known else "none",
            key=key,
            on_change=url.durable(fill),
            help="Fills in what is known of the paper's models: name, address, thinking switch, recommended sampling. "
            "You can change all of it.",
        )
    with middle:
        draft.text(
            "Base URL",
            "base_url",
            placeholder="http://localhost:8000/v1",
            help="Any OpenAI-compatible server. The URL usually ends in /v1.",
        )
    with right:
        draft.text("API key variable", "key_env", DEFAULT_KEY_ENV, help=KEY_HELP)
    with last:
        if names := _listed(draft):
            st.selectbox(
                "Model",
                names,
                format_func=safe.option,
                key=draft.key("served", None, (None, *names)),
                index=None,
                placeholder="choose a model",
                help="What this server lists",
            )
        else:
            help = "As its server names it. Leave empty and test the connection to choose from a list."
            draft.text("Model", "model", placeholder="name on the server", help=help)
    preset = known.get(str(draft.get("preset") or ""))
    if preset is not None:
        hint = f"Suggested GPUs: {preset.gpus}." if preset.gpus else ""
        gone = f"Withdrawn by its maker: {preset.withdrawn}." if preset.withdrawn else ""
        safe.inline(" ".join(part for part in (hint, gone, preset.notes or "") if part), muted=True)


def is_simulated(draft: Draft) -> bool:
    """Whether the model is a simulator's, as far as is known: by its address, or by what a test of it found."""
    model, tested = chosen(draft), draft.get("tested")
    return model.simulated or bool(
        tested and tested[0] == model and isinstance(tested[1], Server) and tested[1].simulated
    )


def _test(draft: Draft, model: Chosen) -> str:
    """Ask the server what it serves and one question, and say what it can do; what is missing where it cannot be
    used."""
    if st.button("Test the connection", icon=":material/network_check:", key="run_new.test"):
        # Kept first: the fields are drawn already, and below they get other values.
        draft.keep()
        draft.put("tested", None)
        try:
            with st.spinner("Contacting the server"):
                if draft.get("where", ENDPOINT) == ENDPOINT:
                    model = _list_models(draft, model)
                if model.model:
                    server = look_up(model.base_url, model.key_env, model.model, SAMPLES_TRIED, True, None)
                    if server.base_url is not None:
                        draft.put("base_url", server.base_url)
                        model = replace(model, base_url=server.base_url)
                    draft.put("tested", (model, server))
        except (EndpointError, SimulatorError) as problem:
            draft.put("tested", (model, sentence(problem)))
        st.rerun()
    names = _listed(draft)
    if names and not model.model:
        safe.show(safe.tag("div", safe.tag("b", "✓ Connected. "), f"It serves {count(len(names), 'model')}.", cls=OK))
    tested = draft.get("tested")
    # A test is of these very fields: whoever changes one has not tested it.
    if not tested or tested[0] != model:
        return ""
    if isinstance(tested[1], Server):
        limit = draft.get("max_tokens", MESSAGE_TOKENS)
        late = tested[1].too_slow(limit and int(limit), float(draft.get("timeout", 120)))
        safe.show(_capabilities(tested[1], late))
        return ""
    page.error("This model cannot be used yet.", tested[1])
    return "The connection test failed. Start the server or correct the fields above, then test it again."


def _list_models(draft: Draft, model: Chosen) -> Chosen:
    """Keep what the server lists, to choose from; returns the model with a name, where there is one or only one is
    served. Raises EndpointError."""
    from cimemories.llm.http.transport import probe

    draft.put("listed", None)
    # Without retries: somebody is waiting for the page.
    info = probe(Endpoint(model.base_url, model.key_env), "", retries=0)
    names = info.models
    if names and info.base_url is not None:
        draft.put("base_url", info.base_url)
        model = replace(model, base_url=info.base_url)
    name = names[0] if len(names) == 1 and not model.model else model.model
    if names and (not name or name in names):
        draft.put("served", name or None)
        draft.put("listed", ((model.base_url, model.key_env), names))
    return replace(model, model=name)


def _capabilities(server: Server, late: str) -> safe.Html:
    """Show what a server can do and what is worked around, in words. late: what to do if it is too slow."""
    who = "✓ The simulator answers." if server.simulated else "✓ The server answers."
    version = f" Its version is {server.version}." if server.version and not server.simulated else ""
    length = f" Its context window is {count(server.max_model_len, 'token')}." if server.max_model_len else ""
    lines = [
        f"{who}{version}{length}",
        "It returns several samples per request."
        if server.n
        else "It returns one sample per request, so samples are requested in parallel.",
        FORMS.get(server.schema, ""),
        f"The token limit is sent as {server.token_limit}.",
        *map(sentence, server.notes),
        sentence(without_options(late)),
    ]
    return safe.lines(dict.fromkeys(filter(None, lines)), "ci-line", box=OK)
