"""No key anywhere: not in the record, in logs, in answers, in what goes wrong, or in what a person is shown."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from evaluating import add
from hostile import IncomingRequest, Reply, completion, error, hostile_server
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from worlds import make_profile

from cimemories.cli import cli
from cimemories.evaluation import planning, runs
from cimemories.evaluation.sweeps import check_sweep
from cimemories.llm import endpoint
from cimemories.llm.client import Client
from cimemories.llm.endpoint import IN_ANSWERS, IN_ERRORS, PLACEHOLDER, Endpoint, EndpointError, Redactor, allow_key
from cimemories.llm.http.transport import probe
from cimemories.llm.worker import WorkError
from cimemories.model import ChatRequest
from cimemories.seeds import SeedError
from cimemories.store.calls import Answer, keys_of
from cimemories.store.engine import Store, open_store
from cimemories.store.tables import metadata

CANARY = "sk-canary-7f3a91d2"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.01)


def holds_key(text: str) -> bool:
    """Whether a piece of the key stands in a text that is long enough to be no chance."""
    return any(CANARY[at : at + IN_ERRORS] in text for at in range(len(CANARY) - IN_ERRORS + 1))


def ask(url: str) -> Answer:
    async def once() -> Answer:
        request = ChatRequest("m", (("user", "Write."),))
        client = Client(allowed(url), simulated=False)
        (answer,) = await client.complete(request, keys_of(request, [0], simulated=False))
        await client.close()
        return answer

    return asyncio.run(once())


def allowed(url: str) -> Endpoint:
    allow_key("CANARY_API_KEY", url)
    return Endpoint(url, "CANARY_API_KEY", 2.0, 1)


def everything(store: Store) -> Iterator[str]:
    """Every value of every table as text."""
    with store.read() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(sa.select(table)):
                yield from map(str, row)


REPLIES: dict[str, Callable[[IncomingRequest], Reply]] = {
    "in the text": lambda chat: completion(f"Dear bank, {chat.authorization}"),
    "in the thoughts": lambda chat: completion("Dear bank", reasoning=chat.authorization),
    "in the reason": lambda chat: completion("Dear bank", finish_reason=chat.authorization),
    "in an error": lambda chat: error(400, f"what is {chat.authorization}?"),
    "in a long error": lambda chat: error(400, "x" * 490 + chat.authorization[:20]),
    "in a header": lambda chat: Reply(500, "no", headers={"X-Request-Id": chat.authorization, "Retry-After": "0"}),
    "where it should go next": lambda chat: Reply(307, headers={"Location": f"http://x:y@[/{chat.authorization}"}),
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_key_that_a_server_sends_back_is_in_no_answer_and_no_log(
    reply: Callable[[IncomingRequest], Reply], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx2", "aiohttp"):
        caplog.set_level(logging.DEBUG, name)
    with hostile_server(reply) as server:
        answer = ask(server.url)
        assert server.chats[0].authorization == f"Bearer {CANARY}"
    assert any(record.name.startswith("httpx2") for record in caplog.records), "the logs are on"
    assert not holds_key(str(answer))
    assert not holds_key(caplog.text)


def test_a_key_that_a_server_sends_back_is_nowhere_in_the_record(sqlite_store: Store) -> None:
    add(sqlite_store, [make_profile(0, 3, 4)], "world")

    def echo(chat: IncomingRequest) -> Reply:
        answer = completion(f"Dear bank, {chat.authorization}") if chat.number % 2 else error(400, chat.authorization)
        return completion(*["ok"] * chat.n) if chat.number == 0 else answer

    with hostile_server(echo) as server:
        allow_key("CANARY_API_KEY", server.url)
        spec = planning.RunSpec(
            dataset="world", model="m", base_url=server.url, samples=1, api_key_env="CANARY_API_KEY"
        )
        runs.execute(sqlite_store, planning.plan(sqlite_store, spec))
        with hostile_server(lambda chat: error(401, f"bad key {chat.authorization}")) as closed:
            allow_key("CANARY_API_KEY", closed.url)
            run_id = planning.plan(
                sqlite_store,
                planning.RunSpec(
                    dataset="world", model="m", base_url=server.url, samples=2, api_key_env="CANARY_API_KEY"
                ),
            )
            with pytest.raises(WorkError) as caught:
                runs.execute(sqlite_store, run_id, base_url=closed.url)
    trace = "".join(traceback.format_exception(caught.value))
    assert not holds_key(trace)
    texts = list(everything(sqlite_store))
    assert any(PLACEHOLDER in text for text in texts)
    assert not [text for text in texts if holds_key(text)]


@pytest.mark.parametrize(
    "address",
    [
        f"http://user:{CANARY}@127.0.0.1:1/v1",
        f"http://{CANARY}@127.0.0.1:1/v1",
        f"http://127.0.0.1:1/v1?api_key={CANARY}",
        f"http://127.0.0.1:1/v1#{CANARY}",
        f"http://127.0.0.1:1/v1;api_key={CANARY}",
        f"http://user:p;{CANARY}@127.0.0.1:1/v1",
        f"http://user:/{CANARY}@127.0.0.1:1/v1",
        f"http://user:[{CANARY}@127.0.0.1:1/v1",
        f"user:{CANARY}@127.0.0.1:1/v1",
        f"http://127.0.0.1:1/v1&api_key={CANARY}",
        f"http://127.0.0.1:1/v1%3Fapi_key={CANARY}",
        f"http://127.0.0.1:1/v1%3fapi_key%3d{CANARY}",
        f"http://127.0.0.1:1/v1%253Fapi_key%253D{CANARY}",
        f"http://user:{CANARY}%40127.0.0.1:1/v1",
    ],
)
def test_an_address_that_holds_a_key_is_refused_without_repeating_it(address: str, sqlite_store: Store) -> None:
    add(sqlite_store, [make_profile(0, 3, 4)], "world")
    with pytest.raises(EndpointError, match="--api-key-env") as caught:
        planning.plan(sqlite_store, planning.RunSpec(dataset="world", model="m", base_url=address))
    assert not holds_key("".join(traceback.format_exception(caught.value)))
    assert not [text for text in everything(sqlite_store) if holds_key(text)]


@pytest.mark.parametrize("address", [f"http://user:{CANARY}", f"http://user:{CANARY}/v1", f"http://a b:{CANARY}"])
def test_what_is_no_address_is_refused_without_repeating_what_may_be_a_key(address: str) -> None:
    with pytest.raises(EndpointError, match="address") as caught:
        Endpoint(address)
    assert not holds_key(str(caught.value))


@pytest.mark.parametrize("address", ["http://[::1]:8000/v1", "http://[fe80::1%25eth0]:8000/v1", "https://h/a%20b/v1"])
def test_an_address_of_host_and_path_is_taken(address: str) -> None:
    assert Endpoint(address).base_url == address


def test_a_probe_names_no_key_not_even_in_its_traceback() -> None:
    with (
        hostile_server(models=error(500, f"Bearer {CANARY} is wrong")) as server,
        pytest.raises(EndpointError) as caught,
    ):
        probe(allowed(server.url), "m")
    assert not holds_key("".join(traceback.format_exception(caught.value)))
    with hostile_server(models=(f"model of {CANARY}",)) as server, pytest.raises(EndpointError) as caught:
        probe(allowed(server.url), "m")
    assert not holds_key("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize("key", [f"{CANARY}\u00e9", f"{CANARY}\nX-Evil: yes", f"{CANARY}\x00"])
def test_a_key_that_cannot_be_sent_is_said_so(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"CANARY_API_KEY": key})
    allow_key("CANARY_API_KEY", "http://127.0.0.1:1/v1")
    with pytest.raises(EndpointError, match=r"\$CANARY_API_KEY") as caught:
        Client(Endpoint("http://127.0.0.1:1/v1", "CANARY_API_KEY"), simulated=False)
    assert not holds_key(str(caught.value))


@given(before=st.text(), start=st.integers(0, 40), length=st.integers(0, 40), after=st.text())
def test_what_a_text_shares_with_the_key_is_taken_out_and_nothing_else(
    before: str, start: int, length: int, after: str
) -> None:
    key = "hf_QmZx7Lr2Tb9Vw4Yk8Np3Hs6Jd1Gc5Fa0Eu"
    part = key[start : start + length]
    redactor = Redactor(key)
    text = before + part + after
    for taken_out, least in ((redactor.error, IN_ERRORS), (redactor.answer, IN_ANSWERS)):
        redacted = taken_out(text)
        assert not any(key[at : at + least] in redacted for at in range(len(key) - least + 1))
        if not any(key[at : at + least] in text for at in range(len(key) - least + 1)):
            assert redacted == text


def test_a_key_goes_only_to_the_server_that_it_was_named_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile_server() as named, hostile_server() as other:
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
        allow_key("CANARY_API_KEY", named.url)

        async def both(variable: str) -> list[str]:
            request = ChatRequest("m", (("user", "Write."),))
            for server in (named, other):
                client = Client(Endpoint(server.url, variable), simulated=False)
                await client.complete(request, keys_of(request, [0], simulated=False))
                await client.close()
            return [server.chats[-1].authorization for server in (named, other)]

        assert asyncio.run(both("CANARY_API_KEY")) == [f"Bearer {CANARY}", "Bearer no-key-needed"]
        assert asyncio.run(both("OPENAI_API_KEY")) == ["Bearer no-key-needed"] * 2


@pytest.mark.parametrize("name", ["AWS_SECRET", "HOME", "X_API_KEY_2", "PATH\n_API_KEY", "_API_KEY=", "a-b_TOKEN"])
def test_no_other_variable_than_one_of_a_key_is_read(name: str, sqlite_store: Store) -> None:
    add(sqlite_store, [make_profile(0, 3, 4)], "world")
    with hostile_server() as server:
        with pytest.raises(EndpointError, match="_API_KEY or _TOKEN"):
            planning.plan(
                sqlite_store, planning.RunSpec(dataset="world", model="m", base_url=server.url, api_key_env=name)
            )
        with pytest.raises(EndpointError, match="_API_KEY or _TOKEN"):
            allow_key(name, server.url)
        assert not server.chats


def test_a_refusal_says_that_the_key_was_held_back_and_how_to_allow_it() -> None:
    with hostile_server(lambda chat: error(401, "who are you")) as server:
        answer = ask_without_leave(server.url)
        assert answer.status == "unauthorised"
        assert f"--allow-key CANARY_API_KEY={server.url.removesuffix('/v1')}" in str(answer.error)
    with (
        hostile_server(models=error(401, "who are you")) as server,
        pytest.raises(EndpointError, match="--allow-key CANARY_API_KEY="),
    ):
        probe(Endpoint(server.url, "CANARY_API_KEY"), "m")


def ask_without_leave(url: str) -> Answer:
    async def once() -> Answer:
        request = ChatRequest("m", (("user", "Write."),))
        client = Client(Endpoint(url, "CANARY_API_KEY"), simulated=False)
        (answer,) = await client.complete(request, keys_of(request, [0], simulated=False))
        await client.close()
        return answer

    return asyncio.run(once())


def test_a_run_from_elsewhere_sends_no_key_when_it_is_resumed(sqlite_store: Store) -> None:
    """The record names the variable and the address, and both may have been written by somebody else."""
    add(sqlite_store, [make_profile(0, 3, 4)], "world")
    with hostile_server() as server:
        run_id = planning.plan(
            sqlite_store,
            planning.RunSpec(dataset="world", model="m", base_url=server.url, samples=1, api_key_env="CANARY_API_KEY"),
        )
        runs.execute(sqlite_store, run_id)
        assert {chat.authorization for chat in server.chats} == {"Bearer no-key-needed"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_the_settings_file_names_servers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    settings = tmp_path / "settings.toml"
    monkeypatch.setenv(endpoint.SETTINGS, str(settings))
    assert not endpoint.may_send("LAB_API_KEY", "https://llm.lab.example/v1")
    settings.write_text('[keys]\nLAB_API_KEY = ["https://llm.lab.example", "http://localhost:8000/v1"]\n', encoding)
    assert endpoint.may_send("LAB_API_KEY", "https://llm.lab.example:443/v1")
    assert endpoint.may_send("LAB_API_KEY", "http://LOCALHOST:8000/v1/")
    for url in ("http://llm.lab.example/v1", "https://llm.lab.example:8443", "https://llm.lab.example.evil.example"):
        assert not endpoint.may_send("LAB_API_KEY", url)
    assert not endpoint.may_send("OTHER_API_KEY", "https://llm.lab.example/v1")
    for wrong in ('[keys]\nAWS_SECRET = "https://x.example"\n', "[keys]\nLAB_API_KEY = [3]\n", "keys = 3", "keys = ["):
        settings.write_text(wrong)
        with pytest.raises(EndpointError, match="settings"):
            endpoint.may_send("LAB_API_KEY", "https://llm.lab.example/v1")


def test_the_makers_of_the_presets_get_their_own_keys_alone() -> None:
    assert endpoint.may_send("OPENAI_API_KEY", "https://api.openai.com/v1")
    assert endpoint.may_send("ANTHROPIC_API_KEY", "https://api.anthropic.com/v1/")
    assert not endpoint.may_send("ANTHROPIC_API_KEY", "https://api.openai.com/v1")


def test_a_command_allows_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`label` and `run` name both; a sweep's file names nothing that counts, and --allow-key does."""
    add(open_store(tmp_path), [make_profile(0, 3, 4)], "world")
    with hostile_server(models=error(401, "who are you")) as server:
        arguments = ["--model", "m", "--base-url", server.url, "--api-key-env", "CANARY_API_KEY", "-w", str(tmp_path)]
        outcome = CliRunner().invoke(cli, ["run", "-d", "world", *arguments])
        assert "refuses the key in $CANARY_API_KEY" in str(outcome.exception)
        monkeypatch.setenv(endpoint.KEYS, "")
        sweep = tmp_path / "sweep.yaml"
        sweep.write_text(
            f"name: s\ndataset: world\nsamples: 1\nmodels: [{{model: m, base_url: '{server.url}', "
            "api_key_env: CANARY_API_KEY}]\njudges: [matcher]\n"
        )
        outcome = CliRunner().invoke(cli, ["sweep", str(sweep), "-w", str(tmp_path)])
        assert "--allow-key" in str(outcome.exception)
        allowed = f"CANARY_API_KEY={server.url}"
        outcome = CliRunner().invoke(cli, ["sweep", str(sweep), "--allow-key", allowed, "-w", str(tmp_path)])
        assert "refuses the key in $CANARY_API_KEY" in str(outcome.exception)
        assert os.environ[endpoint.KEYS] == allowed.removesuffix("/v1")
        outcome = CliRunner().invoke(cli, ["sweep", str(sweep), "--allow-key", "HOME=/", "-w", str(tmp_path)])
        assert outcome.exit_code == 2


def test_a_short_key_leaves_a_models_own_words_alone() -> None:
    redactor = Redactor("EMPTY")
    assert redactor.answer("The fridge is EMPTY.") == "The fridge is EMPTY."
    assert redactor.error("bad key EMPTY") == f"bad key {PLACEHOLDER}"


@pytest.mark.parametrize("where", ["models", "judges"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_url", f"http://me:{CANARY}@127.0.0.1:1/v1"),
        ("base_url", f"http://127.0.0.1:1/v1?password={CANARY}"),
        ("base_url", f"http://127.0.0.1:1/v1;api_key={CANARY}"),
        ("api_key_env", "AWS_SECRET"),
    ],
)
def test_a_sweep_that_names_a_secret_or_holds_one_is_refused_as_it_is_read(
    where: str, field: str, value: str, tmp_path: Path
) -> None:
    entry = {"model": "m", "base_url": "http://127.0.0.1:1/v1", field: value}
    file = {"name": "s", "dataset": "world", "models": [{"model": "m", "base_url": "simulator"}], where: [entry]}
    path = tmp_path / "sweep.yaml"
    path.write_text(json.dumps(file))
    outcome = CliRunner().invoke(cli, ["sweep", str(path), "--plan", "-w", str(tmp_path / "w")])
    assert isinstance(outcome.exception, ValueError)
    output = "".join(traceback.format_exception(outcome.exception)) + outcome.output
    assert f"{where}[0]" in output or f"{where}" in output
    assert field == "api_key_env" or not holds_key(output)


@pytest.mark.parametrize("where", ["models", "judges"])
def test_a_model_name_that_shows_as_another_is_refused_as_the_sweep_is_read(where: str, tmp_path: Path) -> None:
    entry = {"model": "gpt\u202e5-4", "base_url": "http://127.0.0.1:1/v1"}
    content = {"name": "s", "dataset": "world", "models": [{"model": "m", "base_url": "simulator"}], where: [entry]}
    with pytest.raises(SeedError, match="without control characters"):
        check_sweep(content, tmp_path / "sweep.yaml")
