"""No key anywhere: not in the record, in logs, in answers, in what goes wrong, or in what a person is shown."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from evaluating import add
from hostile import Asked, Reply, completion, error, hostile_server
from hypothesis import given
from hypothesis import strategies as st
from worlds import make_profile

from cimemories.evaluation import runs
from cimemories.llm.client import Client, Endpoint, EndpointError, probe
from cimemories.llm.redact import IN_ANSWERS, IN_ERRORS, PLACEHOLDER, Redactor
from cimemories.llm.worker import WorkError
from cimemories.model import ChatRequest
from cimemories.store.calls import Answer, call_keys
from cimemories.store.engine import Store
from cimemories.store.tables import metadata

CANARY = "sk-canary-7f3a91d2"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", CANARY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.01)


def holds_key(text: str) -> bool:
    """Whether a piece of the key stands in a text that is long enough to be no chance."""
    return any(CANARY[at : at + IN_ERRORS] in text for at in range(len(CANARY) - IN_ERRORS + 1))


def ask(url: str) -> Answer:
    async def once() -> Answer:
        request = ChatRequest("m", (("user", "Write."),))
        client = Client(Endpoint(url, "CANARY_KEY", 2.0, 1), simulated=False)
        (answer,) = await client.complete(request, call_keys(request, [0], simulated=False))
        await client.close()
        return answer

    return asyncio.run(once())


def everything(store: Store) -> Iterator[str]:
    """Every value of every table as text."""
    with store.read() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(sa.select(table)):
                yield from map(str, row)


REPLIES: dict[str, Callable[[Asked], Reply]] = {
    "in the text": lambda asked: completion(f"Dear bank, {asked.authorization}"),
    "in the thoughts": lambda asked: completion("Dear bank", reasoning=asked.authorization),
    "in the reason": lambda asked: completion("Dear bank", finish_reason=asked.authorization),
    "in an error": lambda asked: error(400, f"what is {asked.authorization}?"),
    "in a long error": lambda asked: error(400, "x" * 490 + asked.authorization[:20]),
    "in a header": lambda asked: Reply(500, "no", headers={"X-Request-Id": asked.authorization, "Retry-After": "0"}),
    "where it should go next": lambda asked: Reply(307, headers={"Location": f"http://x:y@[/{asked.authorization}"}),
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_key_that_a_server_sends_back_is_in_no_answer_and_no_log(
    reply: Callable[[Asked], Reply], caplog: pytest.LogCaptureFixture
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

    def echo(asked: Asked) -> Reply:
        answer = (
            completion(f"Dear bank, {asked.authorization}") if asked.number % 2 else error(400, asked.authorization)
        )
        return completion(*["ok"] * asked.n) if asked.number == 0 else answer

    with hostile_server(echo) as server:
        spec = runs.RunSpec("world", "m", server.url, samples=1, api_key_env="CANARY_KEY")
        runs.execute(sqlite_store, runs.plan(sqlite_store, spec))
        with hostile_server(lambda asked: error(401, f"bad key {asked.authorization}")) as closed:
            run_id = runs.plan(
                sqlite_store, runs.RunSpec("world", "m", server.url, samples=2, api_key_env="CANARY_KEY")
            )
            with pytest.raises(WorkError) as caught:
                runs.execute(sqlite_store, run_id, base_url=closed.url)
    told = "".join(traceback.format_exception(caught.value))
    assert not holds_key(told)
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
    ],
)
def test_an_address_that_holds_a_key_is_refused_without_repeating_it(address: str, sqlite_store: Store) -> None:
    add(sqlite_store, [make_profile(0, 3, 4)], "world")
    with pytest.raises(EndpointError, match="--api-key-env") as caught:
        runs.plan(sqlite_store, runs.RunSpec("world", "m", address))
    assert "http://127.0.0.1:1/v1" in str(caught.value)
    assert not holds_key("".join(traceback.format_exception(caught.value)))
    assert not [text for text in everything(sqlite_store) if holds_key(text)]


def test_a_probe_names_no_key_not_even_in_its_traceback() -> None:
    with (
        hostile_server(models=error(500, f"Bearer {CANARY} is wrong")) as server,
        pytest.raises(EndpointError) as caught,
    ):
        probe(Endpoint(server.url, "CANARY_KEY"), "m")
    assert not holds_key("".join(traceback.format_exception(caught.value)))
    with hostile_server(models=(f"model of {CANARY}",)) as server, pytest.raises(EndpointError) as caught:
        probe(Endpoint(server.url, "CANARY_KEY"), "m")
    assert not holds_key("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize("key", [f"{CANARY}\u00e9", f"{CANARY}\nX-Evil: yes", f"{CANARY}\x00"])
def test_a_key_that_cannot_be_sent_is_said_so(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"CANARY_KEY": key})
    with pytest.raises(EndpointError, match=r"\$CANARY_KEY") as caught:
        Client(Endpoint("http://127.0.0.1:1/v1", "CANARY_KEY"), simulated=False)
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
        found = taken_out(text)
        assert not any(key[at : at + least] in found for at in range(len(key) - least + 1))
        if not any(key[at : at + least] in text for at in range(len(key) - least + 1)):
            assert found == text


def test_a_short_key_leaves_a_models_own_words_alone() -> None:
    redactor = Redactor("EMPTY")
    assert redactor.answer("The fridge is EMPTY.") == "The fridge is EMPTY."
    assert redactor.error("bad key EMPTY") == f"bad key {PLACEHOLDER}"
