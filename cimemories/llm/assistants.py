"""Assistants that are no model behind a prompt: a service or a program, which is given memories and tasks.

    http://localhost:9000        POST /session {"memories": [...]}                      -> {"session": ID}
                                 POST /session/ID/task {"task": ..., "recipient": ...}  -> {"message": ...}
                                 DELETE /session/ID
    command:python agent.py      the same bodies and answers as lines of JSON, on standard input and output

docs/assistants.md has the contract. Every message has a session of its own; in a run with sessions the tasks of a user
and a sample share one, which is opened again with the earlier messages where it was lost. A request in the record is
memories, earlier messages, task and recipient, whatever session carried it.

A program is started only by a process in which a user named it (`allow`): a run in a record names one too, and records
are imported."""

from __future__ import annotations

import asyncio
import asyncio.subprocess
import contextlib
import hashlib
import json
import os
import shlex
import shutil
import signal
import time
import uuid
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import httpx2

from cimemories import event_loop
from cimemories.llm.capabilities import Server
from cimemories.llm.client import FATAL, Client, Failure
from cimemories.llm.endpoint import ASSISTANT, COMMAND, Endpoint, EndpointError
from cimemories.llm.http.transport import LARGEST_BODY
from cimemories.llm.vllm_server import die_with_parent
from cimemories.model import ChatRequest
from cimemories.store.calls import KEEP, OK, Answer, Origin, ServerId, address_of
from cimemories.store.engine import now, storable
from cimemories.text import RepeatedKeyError, merged

GRACE_SECONDS = 2.0  # for a program to end once its input has ended
_LONGEST_ID = 200
_LONGEST_ERROR = 2000  # bytes of a program's standard error
_allowed: set[str] = set()


def allow(address: str) -> None:
    """Let this process start the program that an address names."""
    _allowed.add(address)


class Session(Protocol):
    """A conversation with an assistant. reply: the answer to its opening."""

    reply: Mapping[str, Any]

    async def ask(self, task: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the answer to a task. Raises FailedCall."""

    async def close(self) -> None: ...


class FailedCall(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


class AssistantClient(Client):
    """Gives tasks to an assistant. Each draw is a session of its own."""

    malformed_attempts = 1  # a task may have been carried out, however it was answered

    def __init__(self, endpoint: Endpoint, **more: Any) -> None:
        # Not sent again by the SDK: a task may have been carried out before the connection was cut.
        super().__init__(replace(endpoint, n_at_once=False, max_retries=0), **more)
        self._live: dict[str, Session] = {}  # waiting for their next task, by what they have been told

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self._live.values()))
        await super().close()

    async def opened(self, body: Mapping[str, object]) -> Session:
        """Open a session. Raises FailedCall."""
        if self.endpoint.base_url.startswith(COMMAND):
            return await _Program.started(self.endpoint, body)
        reply = await self.posted("/session", body)
        identity = reply.get("session")
        # Of dots alone it would name another path.
        if not isinstance(identity, str | int) or not 0 < len(str(identity).strip(".")) <= _LONGEST_ID:
            wanted = f"no 'session', a text of at most {_LONGEST_ID} characters"
            raise FailedCall(Failure("malformed", f"the answer to POST /session has {wanted}"))
        return _Service(self, f"/session/{quote(str(identity), safe='', errors='replace')}", reply)

    async def posted(self, path: str, body: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the answer of a service. Raises FailedCall."""
        posted = await self._post(path, json.dumps(body).encode("utf-8", "replace"))
        if isinstance(posted, Failure):
            # What ends the work with a server of models may be an assistant's answer to one task.
            raise FailedCall(replace(posted, cause="rejected") if posted.cause in FATAL else posted)
        if not isinstance(posted[0], Mapping):
            raise FailedCall(Failure("malformed", f"the answer to POST {path} is no JSON object"))
        return posted[0]

    async def deleted(self, path: str) -> None:
        import openai

        with contextlib.suppress(openai.OpenAIError):
            await self._sdk.delete(path, cast_to=httpx2.Response)

    async def _attempt(
        self, request: ChatRequest, draws: Sequence[int], keys: Mapping[int, str]
    ) -> dict[int, Answer] | Failure:
        task, draw = json.loads(request.messages[0][1]), draws[0]
        started, clock = now(), time.perf_counter()
        try:
            reply = await self._carried_out(task, draw)
            # As it came, for the script to read: what cannot be read is an outcome of its own.
            content = outcome_text(reply)
        except FailedCall as error:
            return replace(error.failure, seconds=time.perf_counter() - clock)
        usage = reply.get("usage")
        answer = Answer(
            key=keys[draw],
            draw=draw,
            status=OK,
            exchange=uuid.uuid4().hex,
            seconds=time.perf_counter() - clock,
            started=started,
            content=self._clean(content),
            prompt_tokens=_count(usage, "prompt_tokens"),
            completion_tokens=_count(usage, "completion_tokens"),
        )
        return {draw: answer}

    async def _carried_out(self, request: dict[str, Any], draw: int) -> Mapping[str, Any]:
        keeps = request.pop(KEEP, False)
        task = {name: request.pop(name) for name in ("task", "recipient")}
        session = self._live.pop(_key(request, draw), None)
        is_new = session is None
        session = session or await self.opened(request)
        try:
            if is_new and request.get("earlier") and session.reply.get("resumes") is not True:
                lost = "the session was lost, and the assistant takes back no earlier messages"
                raise FailedCall(Failure("rejected", lost))
            reply = await session.ask(task)
            if keeps and isinstance(message := reply.get("message"), str):
                said = {"recipient": task["recipient"], "message": self._clean(message)}
                request["earlier"] = [*request.get("earlier", ()), said]
                self._live[_key(request, draw)], session = session, None
            return reply
        finally:
            if session is not None:
                await asyncio.shield(session.close())


def outcome_text(reply: Mapping[str, Any]) -> str:
    """Return the message and the channels of an answer as they are recorded, for the script to read. Raises FailedCall
    for what is too large for that."""
    try:
        text = storable(json.dumps({name: reply.get(name) for name in ("message", "channels")}, ensure_ascii=False))
    except RecursionError:
        raise FailedCall(Failure("malformed", "the answer is nested too deeply")) from None
    if len(text) > LARGEST_BODY // 4:
        raise FailedCall(Failure("too large", f"the answer is longer than {LARGEST_BODY // 4:,} characters"))
    return text


def _key(told: Mapping[str, object], draw: int) -> str:
    return hashlib.sha256(json.dumps([draw, told]).encode("utf-8", "replace")).hexdigest()


def _count(usage: object, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


class _Service:
    """A session of an assistant behind HTTP."""

    def __init__(self, client: AssistantClient, path: str, reply: Mapping[str, Any]) -> None:
        self._client, self._path, self.reply = client, path, reply

    async def ask(self, task: Mapping[str, object]) -> Mapping[str, Any]:
        return await self._client.posted(f"{self._path}/task", task)

    async def close(self) -> None:
        await self._client.deleted(self._path)


class _Program:
    """A session of an assistant that is a program: one process, which is gone after it with all that it started."""

    def __init__(
        self, endpoint: Endpoint, process: asyncio.subprocess.Process, transport: asyncio.SubprocessTransport
    ) -> None:
        self._endpoint, self._process, self._transport = endpoint, process, transport
        self._errors = asyncio.create_task(_tail(process.stderr))
        self.reply: Mapping[str, Any] = {}
        self._failed = True  # until it has answered

    @classmethod
    async def started(cls, endpoint: Endpoint, body: Mapping[str, object]) -> _Program:
        # As create_subprocess_exec does, which keeps the transport to itself: its pipes have to be closed, since what
        # the program started may hold their other ends for ever.
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(limit=LARGEST_BODY, loop=loop),
            *program_of(endpoint.base_url),
            env=_environment(endpoint),
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        session = cls(endpoint, asyncio.subprocess.Process(transport, protocol, loop), transport)
        try:
            session.reply = await session.ask(body)
        except BaseException:
            await asyncio.shield(session.close())
            raise
        return session

    async def ask(self, task: Mapping[str, object]) -> Mapping[str, Any]:
        process, seconds = self._process, self._endpoint.timeout
        assert process.stdin is not None
        assert process.stdout is not None
        self._failed = True
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(json.dumps(task).encode("utf-8", "replace") + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except TimeoutError:
            raise FailedCall(Failure("timeout", f"no answer after {seconds:g} s (--timeout)")) from None
        except ValueError:  # the limit of the stream
            most = LARGEST_BODY // 1_000_000
            raise FailedCall(Failure("too large", f"a line of the program is longer than {most} MB")) from None
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        if not line:
            raise FailedCall(Failure("server error", f"the program ended without an answer{await self._last_words()}"))
        try:
            reply = json.loads(line.decode(), object_pairs_hook=merged)  # decoded: else other encodings are tried
        except RepeatedKeyError as error:
            raise FailedCall(Failure("malformed", f"the answer is ambiguous: {self._endpoint.short(error)}")) from None
        except (ValueError, RecursionError) as error:
            raise FailedCall(Failure("malformed", f"the answer is no line of JSON: {str(error)[:100]}")) from None
        if not isinstance(reply, Mapping):
            raise FailedCall(Failure("malformed", "the answer is no JSON object"))
        self._failed = False
        return reply

    async def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        if not self._failed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), GRACE_SECONDS)
        # The group also has what the program started, which may outlive it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        # Waiting may end only with the pipes. The transport itself is closed afterwards: it would look for the end of
        # the process in competition with asyncio, which then complains of an unknown child.
        for number in range(3):
            if pipe := self._transport.get_pipe_transport(number):
                pipe.close()
        await self._process.wait()
        self._transport.close()
        self._errors.cancel()
        await asyncio.gather(self._errors, return_exceptions=True)

    async def _last_words(self) -> str:
        with contextlib.suppress(TimeoutError):
            words = await asyncio.wait_for(asyncio.shield(self._errors), 1.0)
            return f": {self._endpoint.short(words.strip().splitlines()[-1])}" if words.strip() else ""
        return ""


async def _tail(stream: asyncio.StreamReader | None) -> str:
    """Read a stream to its end; return its last part."""
    last = b""
    while stream is not None and (piece := await stream.read(65_536)):
        last = (last + piece)[-_LONGEST_ERROR:]
    return last.decode("utf-8", "replace")


def program_of(address: str) -> list[str]:
    """Return the program of an address and its arguments. Raises EndpointError if this process may not start it, or it
    is not there."""
    if address not in _allowed:
        raise EndpointError(
            "the assistant is a program, and only the command line starts programs. Start it there: cimemories run "
            f"--assistant {shlex.quote(address)}, or cimemories resume RUN --base-url {shlex.quote(address)}. A sweep "
            f"that names it: cimemories sweep FILE --allow-program {shlex.quote(address.removeprefix(COMMAND))}"
        )
    try:
        arguments = shlex.split(address.removeprefix(COMMAND))
    except ValueError as error:
        raise EndpointError(f"--assistant {address[:200]}: {error}.") from None
    if not arguments or shutil.which(arguments[0]) is None:
        raise EndpointError(f"there is no program '{(arguments or [''])[0][:200]}' for --assistant.")
    return arguments


def _environment(endpoint: Endpoint) -> dict[str, str]:
    """Return the environment of a program: keys only if they are named for it, and nothing of this project's."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == endpoint.api_key_env or not (name.startswith("CIMEMORIES") or name.endswith(("_API_KEY", "_TOKEN")))
    }


# ---- which assistant it is


def look_up(endpoint: Endpoint) -> Server:
    """Return what an assistant says of itself, by a session without memories. Raises EndpointError if it cannot be
    used."""
    return event_loop.run(_looked_up(endpoint))


async def _looked_up(endpoint: Endpoint) -> Server:
    client = AssistantClient(endpoint, simulated=False)
    try:
        session = await client.opened({"memories": []})
        reply = session.reply
        await session.close()
    except FailedCall as error:
        raise EndpointError(
            f"the assistant at {endpoint.base_url.removeprefix(ASSISTANT)} opened no session: {error}. It answers "
            'POST /session {"memories": [...]} by {"session": ID} (docs/assistants.md).'
        ) from None
    finally:
        await client.close()
    name, version = (endpoint.short(text)[:100] if isinstance(text, str) else None for text in map(reply.get, _SAID))
    digest = _code(endpoint.base_url)
    version = ", ".join(filter(None, (version, digest and f"code {digest}"))) or None
    return Server(
        simulated=reply.get("simulated") is True,
        n=False,
        root=name,
        revision=version,
        version=version,
        identity=identity(endpoint.base_url, name, version).text,
    )


_SAID = ("name", "version")


def identity(base_url: str, name: str | None, version: str | None) -> ServerId:
    there = base_url.removeprefix(ASSISTANT)
    return ServerId(there if there.startswith(COMMAND) else ASSISTANT + address_of(there), name, version)


def _code(address: str) -> str | None:
    """Return the hash of the code that a program is: of the last file that its command names."""
    if not address.startswith(COMMAND):
        return None
    program, *arguments = program_of(address)
    files = [Path(shutil.which(program) or program), *map(Path, arguments)]
    last = [file for file in files if file.is_file()][-1]
    return hashlib.sha256(last.read_bytes()).hexdigest()[:12]


async def confirmed(endpoint: Endpoint, model: str, planned: Origin) -> Origin:
    """Return `planned` if the assistant is the one that a run was planned with. Raises EndpointError if it has another
    name, version or code, or is simulated in place of a real one or the other way round."""
    was, server = ServerId.read(planned.server or ""), await _looked_up(endpoint)
    if server.simulated != planned.simulated:
        what = "says that it is simulated" if server.simulated else "no longer says that it is simulated"
        raise EndpointError(f"the assistant of {model} {what}, unlike when the run was planned: start a new run")
    if (was.root, was.revision) != (server.root, server.revision):
        before, today = (f"{it.root or 'without a name'} {it.revision or ''}".strip() for it in (was, server))
        raise EndpointError(
            f"{model} was planned with the assistant {before}, and it is {today} now: the rest would not be "
            "comparable. Start that version, or a new run"
        )
    return planned
