"""The reports of a vLLM server: its figures while it serves, and its log, which tells its steps and why it ended.

Figures are read at /metrics (Prometheus text): load, speed, prefix cache, KV cache. The names are those of vLLM's own
metrics/loggers.py; the figures of a data-parallel server's engines are added up.

    vllm:num_requests_running{engine="0",model_name="qwen3"} 3.0
    vllm:generation_tokens_total{engine="0",model_name="qwen3"} 51200.0

The texts looked for in a log are those of vLLM 0.10 to 0.33, of transformers and the hub's client behind it, and of
CUDA. A failure that is not recognised is reported in vLLM's own words."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx2

from cimemories.llm.vllm import VllmError
from cimemories.text import count, percent

# ---- figures

PATIENCE_SECONDS = 2.0  # short, since the user is watching
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LARGEST_ANSWER = 8_000_000  # bytes
_SAMPLE = re.compile(r"^(vllm:\w+)(?:\{[^}\n]*\})? +(\S+)", re.MULTILINE)
# By figure, the current name and that of older servers.
_METRICS = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "generated_tokens": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "cache_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "cache_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "kv_use": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}


@dataclass(frozen=True)
class ServerFigures:
    """One reading. at: seconds of the monotonic clock; tokens: since the server started. kv_use: share of the KV cache
    in use, mean over the engines. cache_queries, cache_hits: prompt tokens looked up in the prefix cache, and those in
    it. tokens_per_second, recent_hit_rate: since an earlier reading (`since`), or None."""

    at: float
    running: int
    waiting: int
    generated_tokens: float
    prompt_tokens: float
    cache_queries: float
    cache_hits: float
    kv_use: float | None
    tokens_per_second: float | None = None
    recent_hit_rate: float | None = None

    @property
    def hit_rate(self) -> float | None:
        """Return the share of looked-up prompt tokens that were in the prefix cache since the start, or None."""
        return self.cache_hits / self.cache_queries if self.cache_queries else None

    @property
    def text(self) -> str:
        """Return the figures in words. Of the prefix cache since the start, if nothing was looked up since the earlier
        reading."""
        hits = self.hit_rate if self.recent_hit_rate is None else self.recent_hit_rate
        parts = [
            f"{count(self.running, 'request')} running, {self.waiting:,} waiting",
            "" if self.tokens_per_second is None else f"{count(self.tokens_per_second, 'token')} a second",
            "" if hits is None else f"prefix cache hits {percent(hits)}",
            "" if self.kv_use is None else f"KV cache {percent(self.kv_use)} full",
        ]
        return ", ".join(filter(None, parts))

    def since(self, before: ServerFigures | None) -> ServerFigures:
        """Return this reading with its rates since an earlier one, if the server was not restarted between them."""
        counters = ("generated_tokens", "prompt_tokens", "cache_queries")  # these only grow, until a restart
        if (
            before is None
            or self.at <= before.at
            or any(getattr(self, name) < getattr(before, name) for name in counters)
        ):
            return self
        queries = self.cache_queries - before.cache_queries
        return replace(
            self,
            tokens_per_second=(self.generated_tokens - before.generated_tokens) / (self.at - before.at),
            recent_hit_rate=(self.cache_hits - before.cache_hits) / queries if queries > 0 else None,
        )


def metrics_url(base_url: str) -> str | None:
    """Return the address of a server's metrics, beside /v1 of this base URL, or None for no web address."""
    try:
        parts = urlsplit(base_url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
    except ValueError:
        return None
    return f"{parts.scheme}://{parts.netloc}{re.sub(r'/v1/?$|/$', '', parts.path)}/metrics"


def read_metrics(base_url: str) -> ServerFigures | None:
    """Take a reading; None for a server that is not vLLM, or does not answer within two seconds. No key is sent."""
    url = metrics_url(base_url)
    if url is None:
        return None
    try:
        # A server on this machine needs no proxy of the environment.
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
    """Return the figures in Prometheus text, or None if it has none of vLLM's."""
    samples: dict[str, list[float]] = {}
    for name, number in _SAMPLE.findall(text):
        try:
            value = float(number)
        except ValueError:
            continue
        if math.isfinite(value):  # Prometheus writes NaN and +Inf as well
            samples.setdefault(name, []).append(value)
    # The first name that there is, not both: a server that reports old and new names would be counted twice.
    values = {
        field: next((samples[name] for name in names if name in samples), []) for field, names in _METRICS.items()
    }
    if not values["running"] and not values["generated_tokens"]:
        return None
    use = values.pop("kv_use")
    sums: dict[str, Any] = {field: sum(numbers) for field, numbers in values.items()}
    sums |= {field: int(sums[field]) for field in ("running", "waiting")}
    return ServerFigures(at, **sums, kv_use=sum(use) / len(use) if use else None)  # a share is averaged


# ---- failures

LAST_LINES = 12
LONGEST_LINE = 400
_PREFIX = re.compile(r"^\((?:APIServer|EngineCore|Worker|DPCoordinator)[^)]*\)\s?")
_STAMP = re.compile(r"^(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d [\d:.]+ (?:\[[^\]]*\] )?")
_TRACE = re.compile(
    r"^\s*(?:File \"|\^|~|Traceback|During handling|The above exception|For further information)"
    r"|^ {4}|^ +warnings\.warn|^\S+resource_tracker\.py|^[ ▀▄█]*[▀▄█]"
)
_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b: ?.|^Value error, |(?:^|: )error: ")
# Errors that only report the end of another process, for a reason given before.
_ECHO = re.compile(r"See (?:root cause|stack trace)|initialization failed|check the stack trace")


# (cause, pattern, message) of ends whose own words do not say what to do; the first pattern that matches counts.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "port in use",
        r"Address already in use|EADDRINUSE|Errno 98\b",
        "another program took the port while vLLM started. Start it on another port.",
    ),
    (
        "gated model",
        r"GatedRepoError|gated repo|awaiting a review|Access to model .{1,120} is restricted",
        "the model is gated. Accept its terms on the model's page, then set HF_TOKEN to a token of that account.",
    ),
    (
        "missing model",
        r"RepositoryNotFoundError|is not a local folder|Repo id must be in the form|Invalid repository ID or local|"
        r"does not appear to have a file named",
        "there is no such model: no folder that holds one, and no such name on the Hugging Face hub, or it is private. "
        "Check the spelling (maker/name), or set HF_TOKEN for a private model.",
    ),
    (
        "missing model",
        r"couldn't connect to '|LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled",
        "the model is not on this disk, and the Hugging Face hub cannot be reached from here. Give a folder that holds "
        "the model, or download it where there is a connection.",
    ),
    (
        "no GPU",
        r"Failed to infer device type|No CUDA GPUs are available|Found no NVIDIA driver|no NVIDIA GPU detected|"
        r"libcuda\.so\.1: cannot open|CUDA driver version is insufficient|Torch not compiled with CUDA",
        "vLLM finds no usable GPU. Check `nvidia-smi` and CUDA_VISIBLE_DEVICES; without a GPU, give the base URL of a "
        "server elsewhere.",
    ),
    (
        "out of memory",
        r"OutOfMemoryError|CUDA out of memory|HIP out of memory|can't allocate memory|std::bad_alloc|\bMemoryError\b|"
        r"Cannot allocate memory|No available memory for the cache blocks",
        "the memory is too small for this model with these settings. Spread it over more GPUs "
        "(--tensor-parallel-size), lower --max-model-len, or use a quantised or smaller model.",
    ),
)


def explain(log: str, exit_code: int | None, *, was_ready: bool = False) -> VllmError:
    """Return why vLLM ended, with the last lines of its log. exit_code: as of subprocess; below zero it is a signal's
    number."""
    # One line, so that a message that was wrapped is found.
    text = " ".join(" ".join(_plain(line) for line in log.splitlines()).split())
    lines = _last_lines(log)
    when = "vLLM ended" if was_ready else "vLLM ended while it started"
    # Once it was ready the log also holds the effects of requests, which need not be why it ended.
    if not was_ready:
        for cause, pattern, message in _KNOWN:
            if re.search(pattern, text):
                return VllmError(message, cause, lines)
    elif re.search(r"OutOfMemoryError|CUDA out of memory", text):
        return VllmError(f"{when}: the GPU ran out of memory. Lower --gpu-memory-utilization.", "out of memory", lines)
    # 128 + n is how a shell between us and vLLM reports signal n.
    if exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        reason = "it was killed from outside, most often because main memory ran out (see `dmesg`)"
        return VllmError(f"{when}: {reason}.", "killed", lines)
    if exit_code is not None and exit_code < 0:
        return VllmError(f"{when}: signal {signal.Signals(-exit_code).name} ended it.", "killed", lines)
    root = f" ({_root(log)})" if _root(log) else ""
    return VllmError(f"{when}, with exit code {exit_code}{root}. See its last lines and its log.", "ended", lines)


def _last_lines(log: str) -> tuple[str, ...]:
    """Return the last lines without stack frames, and with the root cause of an error if they only point back at it."""
    kept = [line for line in map(_plain, log.splitlines()) if line.strip() and not _TRACE.match(line)]
    kept = [line for before, line in zip(["", *kept], kept, strict=False) if line != before]
    tail, root = kept[-LAST_LINES:], _root(log)
    if root and root not in tail:
        tail = [root, *tail[1 - LAST_LINES :]]
    return tuple(line[:LONGEST_LINE] for line in tail)


def start_step(log: str) -> str:
    """Return the current step of vLLM's start, by the last line that tells, or ''."""
    # The last line that tells, not the furthest step: with several processes, steps come back.
    position, step = max((log.rfind(pattern), step) for pattern, step in _STEPS)
    if position < 0:
        return ""
    share = re.findall(r"(Loading safetensors[^:\r\n]*|Capturing CUDA graphs[^:\r\n]*):\s+(\d+)%", log[position:])
    return f"{step} ({share[-1][1]} %)" if share else step


_STEPS: Sequence[tuple[str, str]] = (
    ("non-default args", "reading the model's settings"),
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("Starting to load model", "loading the model"),
    ("Loading safetensors", "loading weights"),
    ("Downloading", "fetching weights"),
    ("Loading weights took", "preparing the model"),
    ("Dynamo bytecode", "compiling"),
    ("Cache the graph", "compiling"),
    ("GPU KV cache size", "allocating the cache"),
    ("CPU KV cache size", "allocating the cache"),
    ("Capturing CUDA graph", "recording CUDA graphs"),
    ("Graph capturing finished", "warming up"),
    ("init engine", "opening the port"),
)


def _plain(line: str) -> str:
    """Return a line without the process and time at its start; of a progress bar its last state."""
    line = line.rsplit("\r", 1)[-1] if "\r" in line.rstrip("\r") else line.rstrip("\r")
    return _STAMP.sub("", _PREFIX.sub("", line)).rstrip()


def _root(log: str) -> str:
    """Return the last error of the log that is more than an echo of another, or ''."""
    for line in reversed(log.splitlines()):
        plain = _plain(line)
        if _ERROR.search(plain) and not _ECHO.search(plain) and not _TRACE.match(plain):
            return plain.strip()
    return ""
