"""Step 1 of a new run: the model, its server, and whether it answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from cimemories.evaluation.planning import look_up
from cimemories.evaluation.spec import MESSAGE_TOKENS, RunSpec
from cimemories.llm.capabilities import Server
from cimemories.llm.endpoint import ASSISTANT, DEFAULT_KEY_ENV, SIMULATOR, Endpoint, EndpointError, is_assistant, origin
from cimemories.seeds.presets import Kind, Preset, load_presets
from cimemories.seeds.reading import SeedError
from cimemories.simulator.policy import SimulatorError
from cimemories.store.engine import Store
from cimemories.text import count, sentence, without_options
from cimemories.ui import page, safe, url
from cimemories.ui.annotator import Draft
from pages.evaluate import run_engine, run_servers
from pages.evaluate.run_settings import draw_field

MANAGED, SERVED, ENDPOINT, SERVICE, SIMULATED = "managed", "served", "endpoint", "assistant", "simulator"
PLACES = {
    MANAGED: "Managed vLLM server",
    SERVED: "vLLM for this run",
    ENDPOINT: "Endpoint",
    SERVICE: "Assistant",
    SIMULATED: "Simulator",
}
SIMULATED_MODELS = ("sim-average", "sim-careful", "sim-oversharing")
SETTINGS = RunSpec.described()
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
    """The model to run: its name, its address, and the variable of its key."""

    model: str
    base_url: str
    key_env: str


def presets() -> dict[str, Preset]:
    """Return the presets by key; none if their file cannot be read."""
    try:
        return {item.key: item for item in load_presets()}
    except SeedError:
        return {}


def preset_of(draft: Draft) -> Preset | None:
    """Return the chosen preset; for a vLLM server, the one of its model's name."""
    if draft.get("where") == ENDPOINT:
        return presets().get(str(draft.get("preset") or ""))
    name = chosen(draft).model if draft.get("where") in (MANAGED, SERVED) else None
    return next((item for item in presets().values() if item.name == name), None)


def chosen(draft: Draft) -> Chosen:
    """Return the entered model, whose texts may still be empty."""
    where = draft.get("where", ENDPOINT)
    if where == SIMULATED:
        return Chosen(str(draft.get("simulated") or SIMULATED_MODELS[0]), SIMULATOR, DEFAULT_KEY_ENV)
    if where == MANAGED:
        address, name = draft.get("managed") or ("", "")
        return Chosen(name, address, DEFAULT_KEY_ENV)
    if where == SERVED:
        name, address = draft.get("own") or ("", "")
        return Chosen(name, address, DEFAULT_KEY_ENV)
    if where == SERVICE:
        address = str(draft.get("assistant") or "").strip()
        return Chosen(str(draft.get("assistant_name") or "").strip(), address and ASSISTANT + address, _place(draft)[1])
    name = str(draft.get("served" if _listed(draft) else "model") or "").strip()
    return Chosen(name, *_place(draft))


def _place(draft: Draft) -> tuple[str, str]:
    """Return the entered address of the endpoint and the variable of its key."""
    key_env = draft.get("api_key_env") or DEFAULT_KEY_ENV
    return str(draft.get("base_url") or "").strip(), str(key_env).strip()


def _listed(draft: Draft) -> tuple[str, ...]:
    """Return the models that the server listed when it was tested; none if the address has changed since."""
    place, names = draft.get("listed") or ("", ())
    return names if place == _place(draft) else ()


def draw_model(store: Store, draft: Draft) -> str:
    """Draw the step. Return a sentence on what is still missing, or ''."""
    served = run_servers.running(store)
    where = st.segmented_control(
        "Where is the model?",
        list(PLACES),
        format_func=PLACES.__getitem__,
        key=draft.key("where", MANAGED if served else ENDPOINT, list(PLACES)),
        required=True,
    )
    if where == SERVED:
        draft.put("own", run_engine.draw_served(draft))
        return "" if chosen(draft).model else "Enter the model that vLLM is to serve."
    if where == MANAGED and not served:
        page.empty(
            "No managed server is ready",
            "Start one on the Servers tab. For a server that you started yourself, choose Endpoint.",
        )
        if st.button("Servers", icon=":material/dns:", key="show.run_new.servers"):
            url.put(tab="servers")
            st.rerun()
        draft.put("managed", None)
        return "Start a server first, or choose Endpoint."
    if where == MANAGED:
        options = [tuple(item) for item in served]
        st.selectbox(
            "Server",
            options,
            format_func=lambda item: safe.option(f"{item[1]} at {item[0]}"),
            key=draft.key("managed", options[0], options),
            help="Ready servers that this app or the command line started",
        )
    elif where == SIMULATED:
        with st.columns([1, 2])[0]:
            draft.select(
                "Model", "simulated", SIMULATED_MODELS, help="How it answers is described in docs/simulator.md"
            )
        st.caption("Simulated runs show how the tool works. Their numbers say nothing about any real model.")
    elif where == SERVICE:
        return _service(draft)
    else:
        _endpoint(draft)
    model = chosen(draft)
    if not model.base_url:
        return "" if where == SIMULATED else "Enter the base URL of the model's server."
    missing = _test(draft, model)
    if missing or model.model:
        return missing
    return "Choose one of the server's models." if _listed(draft) else "Enter the model's name, or test the connection."


def _service(draft: Draft) -> str:
    """Draw the address of an assistant that is a service. Return a sentence on what is missing, or ''."""
    left, middle, right = st.columns([4, 3, 3])
    with left:
        help = "It answers the three requests of docs/assistants.md. Programs are started by the command line."
        draft.text("Address", "assistant", placeholder="http://localhost:9000", help=help)
    with middle:
        draft.text("Name", "assistant_name", placeholder="the name that it gives", help="Its name in tables")
    with right:
        draw_field(draft, SETTINGS["api_key_env"])
    model = chosen(draft)
    if origin(model.base_url) is None:
        return "Enter the address of the assistant, http://HOST:PORT."
    return _test(draft, model)


def _endpoint(draft: Draft) -> None:
    by_key = presets()

    def fill() -> None:
        """Fill in the fields of a preset; the others keep their entries."""
        preset = by_key.get(st.session_state.get(key, ""))
        draft.put("preset", preset.key if preset else NO_PRESET)
        if preset is None:
            return
        draft.put("model", preset.name)
        draft.put("api_key_env", preset.api_key_env or DEFAULT_KEY_ENV)
        # A typed address may be the server of a local model, but never that of a hosted one.
        draft.put("base_url", preset.base_url or (draft.get("base_url") if preset.kind == Kind.LOCAL else ""))

    left, middle, right, last = st.columns([3, 4, 3, 3])
    with left:
        key = draft.key("preset", NO_PRESET, [NO_PRESET, *by_key])
        st.selectbox(
            "Preset",
            [NO_PRESET, *by_key],
            format_func=lambda item: safe.option(by_key[item].title) if item in by_key else "none",
            key=key,
            on_change=url.durable(fill),
            help="Fills in what is known of the paper's models: name, address, thinking switch, recommended sampling. "
            "You can change all of it.",
        )
    with middle:
        draw_field(draft, SETTINGS["base_url"])
    with right:
        draw_field(draft, SETTINGS["api_key_env"])
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
    preset = by_key.get(str(draft.get("preset") or ""))
    if preset is not None:
        hint = f"Suggested GPUs: {preset.gpus}." if preset.gpus else ""
        withdrawn = f"Withdrawn by its maker: {preset.withdrawn}." if preset.withdrawn else ""
        safe.inline(" ".join(part for part in (hint, withdrawn, preset.notes or "") if part), muted=True)


def is_simulated(draft: Draft) -> bool:
    """Return whether the model is simulated, by its address or by the test of its server."""
    model, tested = chosen(draft), draft.get("tested")
    server = tested[1] if tested and tested[0] == model else None
    return model.base_url == SIMULATOR or (isinstance(server, Server) and server.simulated)


def _test(draft: Draft, model: Chosen) -> str:
    """Draw the button that asks the server for its models and one answer, and what the server can do. Return a sentence
    on what is missing, or ''."""
    if st.button("Test the connection", icon=":material/network_check:", key="run_new.test"):
        # First of all: the fields are drawn already, and some get new values below.
        draft.keep()
        draft.put("tested", None)
        try:
            with st.spinner("Contacting the server"):
                if draft.get("where", ENDPOINT) == ENDPOINT:
                    model = _list_models(draft, model)
                if model.model or is_assistant(model.base_url):
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
    # A change of a field voids the test.
    if not tested or tested[0] != model:
        return ""
    server = tested[1]
    if not isinstance(server, Server):
        page.error("This model cannot be used yet.", server)
        return "The connection test failed. Start the server or correct the fields above, then test it again."
    if is_assistant(model.base_url):
        assistant = " ".join(filter(None, (server.root or "The assistant", server.version)))
        safe.show(safe.tag("div", f"✓ {assistant} answers.", cls=OK))
        return ""
    limit = draft.get("max_tokens", MESSAGE_TOKENS)
    status = "✓ The simulator answers." if server.simulated else "✓ The server answers."
    version = f" Its version is {server.version}." if server.version and not server.simulated else ""
    length = f" Its context window is {count(server.max_model_len, 'token')}." if server.max_model_len else ""
    lines = [
        f"{status}{version}{length}",
        "It returns several samples per request."
        if server.n
        else "It returns one sample per request, so samples are requested in parallel.",
        FORMS.get(server.schema, ""),
        f"The token limit is sent as {server.token_limit}.",
        *map(sentence, server.notes),
        sentence(without_options(server.too_slow(limit and int(limit), float(draft.get("timeout", 120))))),
    ]
    safe.show(safe.lines(dict.fromkeys(filter(None, lines)), "ci-line", box=OK))
    return ""


def _list_models(draft: Draft, model: Chosen) -> Chosen:
    """Store the server's list of models for the choice. Return the model, named if it had no name and only one is
    served. Raises EndpointError."""
    from cimemories.llm.http.transport import probe

    draft.put("listed", None)
    # Without retries: the user is waiting for the page.
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
