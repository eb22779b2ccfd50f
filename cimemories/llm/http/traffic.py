"""The requests of this process to one server: how many are in flight, when they pause, and which tries timed out.

A server that takes no more requests answers 429, mostly with how long to wait. All requests to it then wait together,
and fewer are in flight afterwards: half as many after each round that was refused, and one more for each round that was
answered, which is how TCP finds the rate of a line (RFC 5681). A refused request is sent again for as long as anything
gets through, and uses up none of the tries that cut connections and errors of a server have.

    traffic = Traffic()
    response = await traffic.send(lambda: client.send(request))
    traffic.trouble()    # Trouble(limited=True, per_minute=60.0, timed_out=0, ...)
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cimemories.llm.replies import cause_of
from cimemories.text import count

if TYPE_CHECKING:
    import httpx2

LONGEST_RETRY_AFTER = 120.0  # the SDK's own limit, which holds for other errors than 429: it gives up on a longer one
STALLED_SECONDS = 600.0  # without an answer among refusals: then the work ends
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # if the server names none; doubled while nothing gets through
JITTER = 0.1  # of a pause, so that several processes do not all come back at the same moment
WINDOW_SECONDS = 60.0  # the span of the rate, and for which a limit is shown after the last refusal
LEAST_SECONDS = 3.0  # a rate over less says little
SETS_TIMEOUT = "the request timeout sets it (on the command line: --timeout)"


def retry_after(headers: httpx2.Headers) -> float | None:
    """Return the seconds that a server asks to wait, given as seconds, milliseconds or a date, or None."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        return seconds if seconds > 0 and not math.isnan(seconds) else None  # float() reads "nan"
    try:
        date = parsedate_tz(headers.get("retry-after", ""))
        return None if date is None else max(0.0, mktime_tz(date) - time.time()) or None
    except (ValueError, OverflowError, OSError):  # no date, or one beyond the clock's range
        return None


def limits_requests(response: httpx2.Response) -> bool:
    """Return whether the server refuses this request only for the number of requests, so that it is worth sending
    again; a 429 for want of credit is not."""
    return response.status_code == 429 and cause_of(429, response.content) == "rate limited"


@dataclass(frozen=True)
class Trouble:
    """The reasons why requests to a server are slow. limited: it refuses some because they are too many; per_minute:
    requests that get through. timed_out: tries that timed out; seconds: the shortest timeout among them. stalled:
    seconds for which no request got through; 0 if some do."""

    limited: bool = False
    per_minute: float | None = None
    timed_out: int = 0
    seconds: float = math.inf
    stalled: float = 0.0

    def __add__(self, other: Trouble) -> Trouble:
        """Return the trouble of two processes with the same server."""
        rates = [rate for rate in (self.per_minute, other.per_minute) if rate is not None]
        return Trouble(
            self.limited or other.limited,
            sum(rates) if rates else None,
            self.timed_out + other.timed_out,
            min(self.seconds, other.seconds),
            min(self.stalled, other.stalled) if self.limited and other.limited else max(self.stalled, other.stalled),
        )


def troubles_text(troubles: Mapping[str, Trouble]) -> str:
    """Return the reasons for slow work, as one line; '' for none. troubles: by address, of all servers that it asks."""
    texts = []
    for address, trouble in troubles.items():
        server = "the server" if len(troubles) == 1 else urlsplit(address).netloc or address
        if trouble.limited:
            rate, minutes = trouble.per_minute, int(trouble.stalled / 60)
            if minutes:
                most = f"{STALLED_SECONDS / 60:g} min"
                measured = f": none got through for {minutes} min; after {most} the work stops, and can be resumed"
            else:
                measured = "" if rate is None else f": about {float(f'{rate:.2g}'):,.0f} a minute"
            texts.append(f"{server} limits requests{measured}")
        if trouble.timed_out:
            tries = count(trouble.timed_out, "try")
            texts.append(f"{tries} at {server} timed out after {trouble.seconds:g} s; {SETS_TIMEOUT}")
    return "; ".join(texts)


class Traffic:
    """Sends the requests of one process to one server, no faster than the server takes them. Used in one event loop."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._in_flight = 0
        self._most = math.inf  # in flight; without a limit the caller bounds them
        self._before = math.inf  # in flight when the server first limited them: the bound ends there
        self._until = 0.0  # the end of the pause
        self._round = 0  # requests between two refusals are a round, and lower the bound once
        self._refused_rounds = 0  # in a row
        self._stalled: float | None = None  # since when nothing gets through
        self._limited: float | None = None  # since when some are refused
        self._last_refusal = 0.0
        self._answers: deque[float] = deque()  # moments, while it is limited
        self._queue = asyncio.Lock()  # lets in one after the other, in order of arrival
        self._left = asyncio.Event()
        self._timed_out, self._seconds = 0, math.inf
        self._ending = False

    def end_soon(self) -> None:
        """Wait only a minute for a server that lets nothing through: the work ends once its requests do."""
        self._ending = True

    async def send(self, request: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
        """Return the response to a request, sent again while the server refuses it for the number of requests, or that
        refusal if the server asks for more than LONGEST_RETRY_AFTER, or nothing got through for STALLED_SECONDS (see
        `end_soon`)."""
        while True:
            await self._turn()
            round_sent = self._round
            try:
                response = await request()
            finally:
                self._in_flight -= 1
                self._left.set()
            if response.status_code != 429:
                self._count_answer(round_sent)
                return response
            if not limits_requests(response) or not self._pause(response.headers, round_sent):
                response.headers["x-should-retry"] = "false"  # read by the SDK
                return response

    async def _turn(self) -> None:
        """Wait until a request may be sent, and count it."""
        if self._most < math.inf:
            async with self._queue:
                while True:
                    if (rest := self._until - self._clock()) > 0:
                        await self._sleep(rest)
                    elif self._in_flight + 1 > self._most:
                        self._left.clear()
                        await self._left.wait()
                    else:
                        break
        self._in_flight += 1

    def _count_answer(self, round_sent: int) -> None:
        self._stalled = None
        # By one, not to none: if the server names no wait, the pause stays about as long as the last sufficient one.
        self._refused_rounds = max(self._refused_rounds - 1, 0)
        if self._limited is None:
            return
        now = self._clock()
        if now - self._last_refusal > WINDOW_SECONDS:
            self._limited = None
        self._answers.append(now)
        while self._answers[0] < now - WINDOW_SECONDS:
            self._answers.popleft()
        # An answer to a request from before the last refusal says nothing of the rate since.
        if round_sent == self._round:
            self._most += 1 / self._most
            if self._most >= self._before:
                self._most = math.inf

    def _pause(self, headers: httpx2.Headers, round_sent: int) -> bool:
        """Have all requests wait after a refusal; return False if waiting is no use."""
        now = self._last_refusal = self._clock()
        if self._limited is None:
            self._limited = now
            self._answers.clear()
        if round_sent == self._round:
            self._round += 1
            self._refused_rounds += 1
            under_way = self._in_flight + 1  # with this one
            if self._most == math.inf:
                self._before = max(under_way, 2)
            self._most = max(1.0, min(self._most, under_way) / 2)
        # Even if the server names a wait: some always name the same, too short one.
        doubled = min(FIRST_PAUSE * 2.0 ** min(self._refused_rounds - 1, 60), LONGEST_PAUSE)
        wait = max(retry_after(headers) or 0.0, doubled)
        self._stalled = now if self._stalled is None else self._stalled
        longest = WINDOW_SECONDS if self._ending else STALLED_SECONDS
        if wait > LONGEST_RETRY_AFTER or now + wait - self._stalled > longest:
            return False
        self._until = max(self._until, now + wait * (1 + JITTER * random.random()))
        return True

    def count_timeout(self, seconds: float) -> None:
        """Count a try that was not answered within so many seconds."""
        self._timed_out += 1
        self._seconds = min(self._seconds, seconds)

    def trouble(self) -> Trouble:
        """Return the current reasons for slow requests."""
        now = self._clock()
        limited = self._limited is not None and now - self._last_refusal <= WINDOW_SECONDS
        rate = None
        if limited and self._limited is not None and (measured := min(now - self._limited, WINDOW_SECONDS)) > 0:
            answers = sum(moment >= now - WINDOW_SECONDS for moment in self._answers)
            rate = answers / measured * 60 if measured >= LEAST_SECONDS else None
        stalled = 0.0 if self._stalled is None else now - self._stalled
        return Trouble(limited, rate, self._timed_out, self._seconds, stalled)
