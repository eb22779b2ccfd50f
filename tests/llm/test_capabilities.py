"""What a server can do is found out by asking it: refusals and silence alike, with as few requests as can be."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial

import hostile
import pytest
from hostile import IncomingRequest, Reply, completion, error, texts_of
from simulating import lacking

from cimemories.curation import labelling
from cimemories.evaluation import judging, recalling
from cimemories.llm.capabilities import FORM, Server, find_out
from cimemories.llm.client import Client
from cimemories.llm.endpoint import Endpoint, EndpointError, allow_key
from cimemories.llm.replies import BOUNDS, response_format
from cimemories.model import ChatRequest
from cimemories.simulator.server import running_simulator
from cimemories.store.calls import keys_of

hostile_server = partial(hostile.hostile_server, hears_probes=True)
CANARY = "sk-canary-7f3a91d2"
FITS = '{"colour": "blue"}'


def capabilities_of(
    url: str, model: str = "m", *, schema: bool = True, seed: bool = True, samples: int = 5, fields: str = "{}"
) -> Server:
    allow_key("CANARY_API_KEY", url)
    endpoint = Endpoint(url, "CANARY_API_KEY", timeout=5.0)
    return find_out(endpoint, model, schema_wanted=schema, seed_wanted=seed, samples=samples, fields=fields)


def test_a_server_that_can_do_all_is_asked_once() -> None:
    with running_simulator() as url:
        can = capabilities_of(url, "sim-average")
    assert (can.n, can.schema, can.seed, can.token_limit) == (True, "json_schema", True, "max_tokens")
    assert can.simulated
    assert "cimemories-simulator" in str(can.version)
    assert can.notes == ()
    with hostile_server(lambda request: completion(*[FITS] * request.n)) as server:
        can = capabilities_of(server.url)
        assert [(request.n, request.seed) for request in server.chats] == [(2, 0)]
    assert (can.n, can.schema, can.seed, can.version, can.models) == (True, "json_schema", True, None, ("m",))


@pytest.mark.parametrize(
    ("lacks", "n", "schema", "seed", "limit"),
    [
        (("n",), False, "json_schema", True, "max_tokens"),
        (("ignores n",), False, "json_schema", True, "max_tokens"),
        (("json_schema",), True, "json_object", True, "max_tokens"),
        (("ignores json_schema",), True, "json_object", True, "max_tokens"),
        (("json_schema", "json_object"), True, "none", True, "max_tokens"),
        (("ignores json_schema", "ignores json_object"), True, "none", True, "max_tokens"),
        (("seed",), True, "json_schema", False, "max_tokens"),
        (("max_tokens",), True, "json_schema", True, "max_completion_tokens"),
        (("n", "json_schema", "seed", "max_tokens"), False, "json_object", False, "max_completion_tokens"),
    ],
    ids=str,
)
def test_what_is_missing_is_found_and_said(
    lacks: tuple[str, ...], n: bool, schema: str, seed: bool, limit: str
) -> None:
    with running_simulator(lacking(*lacks)) as url:
        can = capabilities_of(url, "sim-average")
    assert (can.n, can.schema, can.seed, can.token_limit) == (n, schema, seed, limit)
    expected = [n is False, schema != "json_schema", seed is False, limit != "max_tokens"]
    assert len(can.notes) == sum(expected)


@pytest.mark.parametrize("part", ["n", "response_format", "seed"])
@pytest.mark.parametrize("status", [400, 500])
def test_a_refusal_that_does_not_say_why_is_tracked_down(part: str, status: int) -> None:
    def moody(request: IncomingRequest) -> Reply:
        return error(status, "Bad request.") if part in request.body else completion(*[FITS] * request.n)

    with hostile_server(moody) as server:
        can = capabilities_of(server.url)
        assert len([request for request in server.chats if part not in request.body]) <= 4
    assert (can.n, can.seed) == (part != "n", part != "seed")
    assert (can.schema == "json_schema") == (part != "response_format")


@pytest.mark.parametrize("says", [True, False], ids=["names it", "says nothing"])
def test_a_temperature_that_is_refused_is_left_out(says: bool) -> None:
    def stubborn(request: IncomingRequest) -> Reply:
        if request.body.get("temperature", 1) != 1:
            return error(400, "'temperature' does not support 0 with this model." if says else "Bad request.")
        return completion(*[FITS] * request.n)

    with hostile_server(stubborn) as server:
        can = capabilities_of(server.url, fields='{"temperature": 0.0, "top_p": 0.9}')
        assert all(request.body["top_p"] == 0.9 for request in server.chats), "tested as it will be sent"
    assert (can.schema, can.temperature) == ("json_schema", False)
    assert "a temperature of 0" in can.notes[0]
    assert can.accepted({"temperature": 0.0, "top_p": 0.9}) == {"top_p": 0.9}
    assert can.as_json()["temperature"] is False, "the manifest says so"


def test_another_field_that_is_refused_makes_the_server_unusable() -> None:
    with (
        hostile_server(
            lambda request: error(400, "Unknown field: top_k.") if "top_k" in request.body else completion(FITS)
        ) as server,
        pytest.raises(EndpointError, match="top_k"),
    ):
        capabilities_of(server.url, samples=1, fields='{"top_k": 4}')


@pytest.mark.parametrize("keyword", ["minimum", "maximum", "maxItems", "pattern"])
@pytest.mark.parametrize("says", [True, False], ids=["names it", "says nothing"])
def test_a_schema_is_sent_without_bounds_where_they_are_refused(keyword: str, says: bool) -> None:
    def picky(request: IncomingRequest) -> Reply:
        if f'"{keyword}"' in json.dumps(request.body.get("response_format", {})):
            return error(400, f"For 'integer' type, property '{keyword}' is not supported" if says else "Bad request.")
        return completion(*[FITS] * request.n)

    with hostile_server(picky) as server:
        can = capabilities_of(server.url)
        sent = server.chats[-1].body.get("response_format") or server.chats[-2].body["response_format"]
    assert can.schema == "plain_schema"
    assert any(keyword in note for note in can.notes)
    assert (
        response_format(judging.answer_schema(3), can.schema)["response_format"]["type"]
        == sent["type"]
        == "json_schema"
    )
    for form in (judging.answer_schema(3), labelling.answer_schema(3), recalling.gate_schema(3)):
        assert not set(BOUNDS) & keywords_of(response_format(form, can.schema))
        assert keywords_of(form) & set(BOUNDS) <= keywords_of(FORM), "what is used has been tested"


def test_a_server_that_leaves_reasoning_in_the_text_is_told_to_use_a_parser() -> None:
    with hostile_server(lambda request: completion(*[f"hm, the sky</think>{FITS}"] * request.n)) as server:
        can = capabilities_of(server.url)
    assert can.schema == "json_schema"
    assert "reasoning parser" in can.notes[0]


def test_one_broken_answer_makes_no_server_unusable() -> None:
    def flaky(request: IncomingRequest) -> Reply:
        return Reply(body=b'{"choices": [{"ind') if request.number % 3 < 2 else completion(*[FITS] * request.n)

    with hostile_server(flaky) as server:
        can = capabilities_of(server.url)
        assert len(server.chats) == 3
    assert (can.schema, can.notes) == ("json_schema", ())


def keywords_of(value: object) -> set[str]:
    """Return the names of all fields in a JSON value."""
    if isinstance(value, dict):
        return set(value) | {name for item in value.values() for name in keywords_of(item)}
    return {name for item in value for name in keywords_of(item)} if isinstance(value, list) else set()


def test_nothing_is_asked_that_nobody_wants() -> None:
    with hostile_server() as server:
        can = capabilities_of(server.url, schema=False, seed=False, samples=1)
        (request,) = server.chats
    assert set(request.body) == {"model", "messages", "max_tokens"}
    assert (can.n, can.seed, can.notes) == (True, None, ())


@pytest.mark.parametrize("thinks_for", [100, 10**6])
def test_a_model_that_thinks_first_is_given_time(thinks_for: int) -> None:
    def thinking(request: IncomingRequest) -> Reply:
        if request.body["max_tokens"] < thinks_for:
            return completion(*[None] * request.n, finish_reason="length", reasoning="hm, the sky")
        return completion(*[FITS] * request.n, reasoning="hm, the sky")

    with hostile_server(thinking) as server:
        can = capabilities_of(server.url)
        assert len(server.chats) == 2
    assert can.schema == "json_schema"
    assert bool(can.notes) == (thinks_for > 100), "what could not be seen is said"


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        (error(400, "no such chat template"), "no such chat template"),
        (error(404, "no chat here"), "404"),
        (error(401, "who are you"), r"\$CANARY_API_KEY"),
        (error(429, "no credit"), "credit"),
        (error(500, "CUDA error"), "CUDA error"),
        (Reply(body=b"<html>"), "no chat completion"),
        (Reply(body={"choices": []}), "no chat completion"),
        (Reply(body=b"[" * 100_000), "no chat completion"),
        (Reply(body=b"x" * 50, cut=3), "log"),
    ],
)
def test_a_server_that_answers_nothing_usable_is_refused(
    chat: Reply, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    with hostile_server(lambda request: chat) as server, pytest.raises(EndpointError, match=message) as caught:
        capabilities_of(server.url)
    assert server.url in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
def test_the_key_is_in_no_error_of_a_probe(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    with (
        hostile_server(lambda request: error(status, f"got {request.authorization}")) as server,
        pytest.raises(EndpointError) as caught,
    ):
        capabilities_of(server.url)
    assert CANARY[:6] not in f"{caught.value} {caught.value.__cause__}"


async def test_draws_of_a_server_without_n_are_asked_one_by_one_and_bounded() -> None:
    request = ChatRequest("m", (("user", "Write."),), {}, 7)
    behaviour = Reply(wait=0.05)

    def slow(request: IncomingRequest) -> Reply:
        answer = texts_of(request)
        return Reply(body=answer.body, wait=behaviour.wait)

    with hostile_server(slow) as server:
        client = Client(Endpoint(server.url, n_at_once=False), simulated=False, at_most=3)
        keys = keys_of(request, range(5), simulated=False)
        one, other = await asyncio.gather(client.complete(request, keys), client.complete(request, keys))
        await client.close()
        assert sorted(server.seeds()) == sorted([(7 + i, 1) for i in range(5)] * 2)
        assert server.most_at_once == 3
    assert [(a.draw, a.content) for a in one] == [(i, f"seed {7 + i}") for i in range(5)]
    assert [a.content for a in other] == [a.content for a in one]
    assert len({a.exchange for a in one}) == 5


def test_a_version_that_is_no_text_is_none() -> None:
    with hostile_server(lambda request: completion(*[json.dumps({"colour": "grey"})] * request.n)) as server:
        assert capabilities_of(server.url).version is None


# ---- addresses


def root_of(url: str) -> str:
    return url.removesuffix("/v1")


@pytest.mark.parametrize("pasted", ["", "/", "/v1/", "/v1/chat/completions", "/v1/models", "/chat/completions"])
def test_an_address_is_corrected_where_the_right_one_answers(pasted: str) -> None:
    with hostile_server(lambda asked: completion(*[FITS] * asked.n), under="/v1") as server:
        can = capabilities_of(root_of(server.url) + pasted)
        assert can.models == ("m",)
        if pasted == "/v1/":
            assert (can.base_url, can.notes) == (None, ())
        else:
            assert can.base_url == server.url
            assert can.notes == (f"{root_of(server.url)}{pasted} was corrected to {server.url}",)
    assert "base_url" not in can.as_json()


def test_a_gateway_without_a_list_of_models_is_found_by_a_request() -> None:
    models = error(404, "no such route")
    with hostile_server(lambda asked: completion(*[FITS] * asked.n), models, under="/v1") as server:
        assert capabilities_of(root_of(server.url)).base_url == server.url


@pytest.mark.parametrize("path", ["/api", "/v1"])
def test_an_address_with_nothing_behind_it_is_named(path: str) -> None:
    with hostile_server(under="/elsewhere/v1") as server, pytest.raises(EndpointError) as caught:
        capabilities_of(root_of(server.url) + path)
    assert f"{root_of(server.url)}{path}/chat/completions" in str(caught.value)
    assert "base URL" in str(caught.value)


def test_a_web_page_at_the_root_is_no_server() -> None:
    """Several servers answer there with a page of their own."""
    page = Reply(body=b"<html>Welcome</html>", content_type="text/html")
    with hostile_server(lambda asked: completion(*[FITS] * asked.n), under="/v1", elsewhere=page) as server:
        assert capabilities_of(root_of(server.url)).base_url == server.url


@pytest.mark.parametrize(
    ("card", "length"),
    [
        ({"max_model_len": 8192}, 8192),
        ({"context_length": 131072}, 131072),
        ({"meta": {"n_ctx_train": 32768, "n_ctx": 2048}}, 2048),
        ({"meta": {"n_ctx_train": 32768}}, None),
        ({"max_model_len": True, "meta": [1]}, None),
    ],
)
def test_the_context_is_read_as_each_server_lists_it(card: dict[str, object], length: int | None) -> None:
    listed = Reply(body={"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "x", **card}]})
    with hostile_server(models=listed) as server:
        assert capabilities_of(server.url).max_model_len == length


def test_the_pace_of_a_slow_server_is_measured_and_a_timeout_proposed() -> None:
    """A tenth of a second before the first token, and a hundredth for each: what a few tokens take is mostly the
    former."""

    def slow(request: IncomingRequest) -> Reply:
        tokens = 64 if "100 words" in str(request.body["messages"]) else 2
        reply = completion(*[FITS] * request.n, usage={"prompt_tokens": 9, "completion_tokens": tokens * request.n})
        return replace(reply, wait=0.1 + 0.01 * tokens)

    with hostile_server(slow) as server:
        can = capabilities_of(server.url)
        assert len(server.chats) == 2, "one more, as the first says too little"
    assert can.speed is not None
    assert 20 < can.speed <= 110
    assert can.too_slow(1024, 120.0) == can.too_slow(None, 1.0) == ""
    late = can.too_slow(1024, 5.0)
    assert "tokens a second" in late
    assert "1,024 tokens" in late
    assert (
        replace(can, speed=3.0).too_slow(1024, 120.0).endswith("Set it to 540 s (on the command line: --timeout 540)")
    )


def test_the_pace_of_a_server_that_counts_no_tokens_is_not_known() -> None:
    with hostile_server(lambda request: replace(completion(*[FITS] * request.n), wait=0.1)) as server:
        can = capabilities_of(server.url)
        assert len(server.chats) == 1
    assert can.speed is None
    assert can.too_slow(10**6, 1.0) == ""
