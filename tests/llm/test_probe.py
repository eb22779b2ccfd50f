"""The probe before the work: what a server that cannot be used comes to for the person who named it."""

from __future__ import annotations

import pytest
from hostile import Reply, error, free_port, hostile_server

from cimemories.llm.endpoint import Endpoint, EndpointError, allow_key
from cimemories.llm.http.transport import probe
from cimemories.simulator.server import running_simulator

CANARY = "sk-canary-7f3a91d2"


def allowed(url: str) -> Endpoint:
    allow_key("CANARY_API_KEY", url)
    return Endpoint(url, "CANARY_API_KEY")


def probed(models: Reply, model: str = "m") -> str:
    """What the probe has against a server that answers like this."""
    with hostile_server(models=models) as server, pytest.raises(EndpointError) as caught:
        probe(allowed(server.url), model)
    message = str(caught.value)
    assert server.url in message
    assert "\n" not in message
    return message


def test_probe_of_nobody() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(EndpointError, match="no answer from") as caught:
        probe(Endpoint(url), "m")
    assert url in str(caught.value)


@pytest.mark.parametrize("url", ["not a url", "http://127.0.0.1:x/v1"])
def test_probe_of_no_address(url: str) -> None:
    with pytest.raises(EndpointError, match="not the address of a server") as caught:
        probe(Endpoint(url), "m")
    assert url not in str(caught.value)  # a part of it may be a password


@pytest.mark.parametrize("status", [401, 403])
def test_probe_names_the_variable_whose_key_is_refused(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    message = probed(error(status, f"bad key {CANARY}"))
    assert "$CANARY_API_KEY" in message
    assert "--api-key-env" in message
    assert CANARY not in message


def test_probe_lists_what_is_served() -> None:
    with hostile_server(models=("alpha", "beta")) as server:
        assert probe(Endpoint(server.url), "beta").models == ("alpha", "beta")
        with pytest.raises(EndpointError, match=r"does not serve 'gamma'.*alpha, beta"):
            probe(Endpoint(server.url), "gamma")


@pytest.mark.parametrize("status", [404, 405])
def test_probe_takes_a_server_without_a_list_at_its_word(status: int) -> None:
    with hostile_server(models=error(status, "no such route")) as server:
        info = probe(Endpoint(server.url), "m")
    assert (info.models, info.simulated, info.max_model_len) == ((), False, None)


@pytest.mark.parametrize(
    "models",
    [
        Reply(body=b"<html>Welcome</html>", content_type="text/html"),
        Reply(body=b"<html>Welcome</html>"),
        Reply(body=b"[1, 2]"),
        Reply(body=b'"hello"'),
        Reply(body=b"null"),
        Reply(body={"data": "hello"}),
        Reply(body={"data": [None]}),
        Reply(body={"data": ["m"]}),
        Reply(body=b"[" * 200_000),
        Reply(body=b"x" * 50, cut=10),
        error(500, "starting"),
    ],
)
def test_probe_of_something_else(models: Reply) -> None:
    assert probed(models)


def test_probe_tells_a_simulator_from_a_server() -> None:
    with running_simulator() as url:
        info = probe(Endpoint(url), "sim-average")
    assert info.simulated
    assert "sim-judge" in info.models
    assert (info.max_model_len or 0) > 0
    with hostile_server(models=("sim-average",)) as server:
        assert not probe(Endpoint(server.url), "sim-average").simulated
