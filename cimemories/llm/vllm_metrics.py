"""What a vLLM server says of itself at /metrics (Prometheus text): load, speed, prefix cache, KV cache.

    vllm:num_requests_running{engine="0",model_name="qwen3"} 3.0
    vllm:generation_tokens_total{engine="0",model_name="qwen3"} 51200.0

The names are those of vLLM's own metrics/loggers.py; what a data-parallel server says of each engine is added up.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

PATIENCE_SECONDS = 2.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LARGEST_ANSWER = 8_000_000  # bytes
_SAMPLE = re.compile(r"^(vllm:\w+)(?:\{[^}\n]*\})? +(\S+)", re.MULTILINE)
# The second names are those of older servers.
_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_GENERATED = ("vllm:generation_tokens_total", "vllm:generation_tokens")
_PROMPT = ("vllm:prompt_tokens_total", "vllm:prompt_tokens")
_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
_KV_USE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")


@dataclass(frozen=True)
class ServerFigures:
    """One reading. `at`: seconds of the monotonic clock; requests as they are now; tokens since the server started.

    kv_use: share of the KV cache in use, 0 to 1, mean over the engines; None where the server does not say.
    cache_queries, cache_hits: prompt tokens that were looked up in the prefix cache, and found there.
    """

    at: float
    running: int
    waiting: int
    generated_tokens: float
    prompt_tokens: float
    cache_queries: float
    cache_hits: float
    kv_use: float | None

    @property
    def hit_rate(self) -> float | None:
        """Share of looked-up prompt tokens found in the prefix cache since the server started; None before any."""
        return self.cache_hits / self.cache_queries if self.cache_queries else None


@dataclass(frozen=True)
class LiveFigures:
    """How a server does between two readings. Requests and kv_use are those of the later one.

    tokens_per_second, prompt_tokens_per_second: written and read; None where that cannot be told (the readings are of
    one moment, or the server started anew between them). hit_rate: of the prompt tokens looked up between them, 0 to 1;
    None where none was.
    """

    running: int
    waiting: int
    tokens_per_second: float | None
    prompt_tokens_per_second: float | None
    hit_rate: float | None
    kv_use: float | None


def metrics_url(base_url: str) -> str | None:
    """Where a server of this base URL has its metrics: beside /v1, not under it. None for what is no web address."""
    try:
        parts = urlsplit(base_url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.netloc}{re.sub(r'/v1/?$|/$', '', parts.path)}/metrics"


def read_metrics(base_url: str) -> ServerFigures | None:
    """What the server says now; None for a server that is not there, is no vLLM, or does not answer within seconds.

    No key is sent: vLLM asks for none at /metrics, and another server is to learn none.
    """
    url = metrics_url(base_url)
    if url is None:
        return None
    try:
        # A proxy of the environment has no business with a server on this machine.
        outside = urlsplit(url).hostname not in LOOPBACK
        with httpx2.stream("GET", url, timeout=PATIENCE_SECONDS, trust_env=outside) as answer:
            if answer.status_code != 200:
                return None
            body, end = b"", time.monotonic() + PATIENCE_SECONDS  # the time-out is between two pieces
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > LARGEST_ANSWER or time.monotonic() > end:
                    return None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError):
        return None
    return parsed(body.decode("utf-8", "replace"), time.monotonic())


def parsed(text: str, at: float) -> ServerFigures | None:
    """The figures in Prometheus text; None where it has none of vLLM's."""
    samples: dict[str, list[float]] = {}
    for name, number in _SAMPLE.findall(text):
        try:
            value = float(number)
        except ValueError:
            continue
        if math.isfinite(value):
            samples.setdefault(name, []).append(value)
    if not any(name in samples for name in (*_RUNNING, *_GENERATED)):
        return None
    use = _found(samples, _KV_USE)
    return ServerFigures(
        at=at,
        running=int(sum(_found(samples, _RUNNING))),
        waiting=int(sum(_found(samples, _WAITING))),
        generated_tokens=sum(_found(samples, _GENERATED)),
        prompt_tokens=sum(_found(samples, _PROMPT)),
        cache_queries=sum(_found(samples, _QUERIES)),
        cache_hits=sum(_found(samples, _HITS)),
        kv_use=sum(use) / len(use) if use else None,
    )


def _found(samples: dict[str, list[float]], names: Iterable[str]) -> list[float]:
    return next((samples[name] for name in names if name in samples), [])


def figures_between(before: ServerFigures | None, after: ServerFigures) -> LiveFigures:
    """How the server did from one reading to the next; without an earlier one there are no rates."""
    seconds = after.at - before.at if before is not None else 0.0
    if before is None or seconds <= 0 or _started_anew(before, after):
        return LiveFigures(after.running, after.waiting, None, None, None, after.kv_use)
    queries = after.cache_queries - before.cache_queries
    return LiveFigures(
        running=after.running,
        waiting=after.waiting,
        tokens_per_second=(after.generated_tokens - before.generated_tokens) / seconds,
        prompt_tokens_per_second=(after.prompt_tokens - before.prompt_tokens) / seconds,
        hit_rate=(after.cache_hits - before.cache_hits) / queries if queries > 0 else None,
        kv_use=after.kv_use,
    )


def _started_anew(before: ServerFigures, after: ServerFigures) -> bool:
    return (
        after.generated_tokens < before.generated_tokens
        or after.prompt_tokens < before.prompt_tokens
        or after.cache_queries < before.cache_queries
    )
