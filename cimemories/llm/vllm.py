"""The user's own vLLM, apart from starting it: its command line, its state files, its figures, and why it failed.

The project imports no vllm: the program is found in an environment of its own and asked over HTTP.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import httpx2
import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cimemories.texts import has_control, visible

if TYPE_CHECKING:
    from cimemories.seeds.presets import Preset

# ---- vllm program
#
# The user's own vLLM: where its program is, the command line that serves a model, and the environment it gets.
#
# vLLM brings its own torch and lives in an environment of its own; nothing of it is imported here.


VLLM = "CIMEMORIES_VLLM"
INSTALL = "python -m venv ~/vllm && ~/vllm/bin/pip install vllm"
USUAL_PLACE = "~/vllm"
HOST = "127.0.0.1"
# Without it small models pad JSON with white space up to the token limit.
STRUCTURED = '{"backend":"xgrammar","disable_any_whitespace":true}'
_OURS = {
    "host": "managed servers listen on this machine only",
    "port": "give the port by its own option",
    "uds": "managed servers are asked over a port",
    "api-key": "a managed server listens on this machine only and asks for no key",
    "hf-token": "set HF_TOKEN in the environment instead, so that it is written down nowhere",
    "served-model-name": "give the served name by its own option",
    "model": "give the model by its own option",
    "config": "give the flags themselves instead of a file of them",
    "allowed-origins": "web pages of other origins must not reach a managed server",
    "ssl-keyfile": "a managed server listens on this machine only, without TLS",
    "ssl-certfile": "a managed server listens on this machine only, without TLS",
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What a managed server takes beside the options of its own: of vLLM 0.10 to 0.33, what sets size, speed and precision.
# Each is matched by its whole name, because argparse takes `--ho` for `--host`.
_SWITCHES = _names(
    """aggregate-engine-logging async-scheduling disable-cascade-attn disable-custom-all-reduce disable-fastapi-docs
    disable-hybrid-kv-cache-manager disable-log-requests disable-log-stats disable-sliding-window
    disable-uvicorn-access-log enable-auto-tool-choice enable-chunked-prefill enable-dbo enable-eplb
    enable-expert-parallel enable-flashinfer-autotune enable-force-include-usage enable-log-requests
    enable-prefix-caching enable-prompt-tokens-details enable-server-load-tracking enforce-eager
    kv-sharing-fast-prefill language-model-only log-error-stack numa-bind skip-mm-profiling
    use-tqdm-on-load"""
)
_VALUES = _names(
    """all2all-backend api-server-count attention-backend block-size chat-template-content-format cpu-offload-gb
    cudagraph-capture-sizes data-parallel-backend data-parallel-size data-parallel-size-local
    decode-context-parallel-size device device-ids disable-access-log-for-endpoints distributed-timeout-seconds dtype
    expert-placement-strategy gpu-memory-utilization kv-cache-dtype kv-cache-memory-bytes limit-mm-per-prompt
    linear-backend logprobs-mode long-prefill-token-threshold max-cudagraph-capture-size max-log-len max-logprobs
    max-model-len max-num-batched-tokens max-num-queued-reqs max-num-queued-tokens max-num-scheduled-tokens
    max-num-seqs max-parallel-loading-workers mm-processor-cache-gb moe-backend num-gpu-blocks-override
    optimization-level override-generation-config performance-mode pipeline-parallel-size
    prefill-context-parallel-size prefix-caching-hash-algo quantization reasoning-parser renderer-num-workers
    response-role revision safetensors-load-strategy scheduling-policy seed stream-interval swap-space
    tensor-parallel-size tokenizer-revision tool-call-parser uvicorn-log-level"""
)
# These load code, read or write files of this machine, or name other servers: a person at the command line may.
_TRUSTED_SWITCHES = _names("enable-lora enable-prompt-embeds trust-remote-code trust-request-chat-template")
_TRUSTED_VALUES = _names(
    """additional-config allowed-local-media-path allowed-media-domains attention-config chat-template code-revision
    compilation-config config-format convert default-chat-template-kwargs distributed-executor-backend download-dir
    eplb-config generation-config guided-decoding-backend hf-config-path hf-overrides ignore-patterns
    io-processor-plugin kernel-config kv-events-config kv-offloading-backend kv-offloading-size kv-transfer-config
    load-format log-config-file logging-config logits-processors lora-modules max-lora-rank max-loras middleware
    model-impl model-loader-extra-config profiler-config quantization-config reasoning-config
    reasoning-parser-plugin runner scheduler-cls spec-method spec-model spec-tokens speculative-config
    structured-outputs-config tokenizer tokenizer-mode tool-parser-plugin tool-server worker-cls
    worker-extension-cls"""
)
_MANY = _names("cudagraph-capture-sizes ignore-patterns logits-processors lora-modules allowed-media-domains")
_NUMBER = re.compile(r"-\d+(?:\.\d+)?")
_SECRET_WORDS = frozenset(("KEY", "KEYS", "APIKEY", "TOKEN", "TOKENS", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS"))
# By its shape: the keys of well-known makers, and an address with a password in it.
_SECRET_VALUE = re.compile(r"(?:sk-|hf_|gsk_|xai-|AIza|ghp_)\S{8,}|\w+://[^/\s:@]*:[^/\s@]+@")
# What fetching a model's weights may need.
_FOR_WEIGHTS = re.compile(r"(?:HF_|HUGGING_FACE_|AWS_).*|.*_PROXY", re.IGNORECASE)
_SHORTEST_SECRET = 6


class VllmError(Exception):
    """A server cannot be started, or ended by itself. `cause` names the kind, `lines` are vLLM's own last ones.

    The message says what happened and what to do next, without the lines.
    """

    def __init__(self, message: str, cause: str = "", lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.cause = cause
        self.lines = tuple(lines)


@dataclass(frozen=True)
class ServerSpec:
    """A server as asked for. What is None or empty is left to vLLM.

    model: a name on the Hugging Face hub, or a folder. served_name: what requests call it; left out it is the model's
    name, of a folder its last part. port: left out, the first free one from 8000. gpu_memory: share of each GPU's
    memory, 0 to 1. keep: leave it running when what started it ends. trusted: a person at the command line asks, so
    that flags which load code or name files are taken too.
    """

    model: str
    port: int | None = None
    served_name: str = ""
    gpu_memory: float | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    max_model_len: int | None = None
    reasoning_parser: str = ""
    quantisation: str = ""
    extra: tuple[str, ...] = ()
    keep: bool = False
    trusted: bool = False

    def of(self, model: str, port: int | None) -> ServerSpec:
        """The same flags for a model on a port."""
        return replace(self, model=model, port=port)

    def kept(self) -> ServerSpec:
        """The same, left running when what started it ends."""
        return replace(self, keep=True)

    def filled(self, preset: Preset) -> ServerSpec:
        """This spec with what it leaves out taken from a preset. Raises VllmError for a model that its maker serves."""
        if preset.serve is None:
            raise VllmError(
                f"{preset.title} is served by its maker at {preset.base_url}, not by vLLM. Use that base URL, with the "
                f"key in ${preset.api_key_env}.",
                "hosted model",
            )
        serve = preset.serve
        return replace(
            self,
            model=self.model or preset.name,
            served_name=self.served_name or preset.name,
            tensor_parallel=self.tensor_parallel or serve.tensor_parallel,
            max_model_len=self.max_model_len or serve.max_model_len,
            reasoning_parser=self.reasoning_parser or serve.reasoning_parser or "",
            quantisation=self.quantisation or serve.quantisation or "",
            extra=(*serve.extra, *self.extra),  # of a flag given twice vLLM takes the last
        )

    @property
    def name(self) -> str:
        """What requests call the model."""
        return self.served_name or (Path(self.model).name if is_path(self.model) else self.model)


def is_path(model: str) -> bool:
    """Whether a model's name can only mean a place on this disk, or does mean one that is there."""
    return model.startswith(("/", "./", "../", "~")) or Path(model).is_dir()


def find_program(environ: Mapping[str, str] | None = None) -> Path:
    """The user's `vllm`: what CIMEMORIES_VLLM names (the program or its environment), else on PATH, else in ~/vllm.

    Raises VllmError where the setting names nothing that can be run, or where there is none at all.
    """
    environ = os.environ if environ is None else environ
    setting = environ.get(VLLM, "").strip()
    if setting:
        named = Path(setting).expanduser()
        for place in (named, named / "bin" / "vllm", named / "vllm"):
            if place.is_file() and os.access(place, os.X_OK):
                return place.absolute()
        raise VllmError(
            f"{VLLM} names {setting}, and there is no program `vllm` that can be run. Name the program itself or the "
            f"environment that it is installed in (made by: {INSTALL}).",
            "no vllm",
        )
    usual = Path(environ.get("HOME", "~"), "vllm", "bin", "vllm").expanduser()
    found = shutil.which("vllm", path=environ.get("PATH", "")) or (str(usual) if os.access(usual, os.X_OK) else None)
    if found is None:
        raise VllmError(
            f"there is no `vllm` on PATH or in {USUAL_PLACE}. Install it into an environment of its own: {INSTALL}   "
            f"(or set {VLLM} to where it is, or give the base URL of a server that already runs).",
            "no vllm",
        )
    return Path(found).absolute()


def server_command(program: Path, spec: ServerSpec, port: int) -> list[str]:
    """The command line. Raises VllmError for what a managed server must not be given, or cannot mean anything.

    What decides where it listens stands last, because of a flag given twice vLLM takes the last.
    """
    if not spec.model.strip() or spec.model.startswith("-"):
        raise VllmError(f"'{spec.model}' is no model: give a name on the Hugging Face hub, or a folder.", "bad setting")
    for name, text in (
        ("model", spec.model),
        ("served name", spec.name),
        ("reasoning parser", spec.reasoning_parser),
        ("quantisation", spec.quantisation),
        *(("extra argument", word) for word in spec.extra),
    ):
        if has_control(text) or (name != "extra argument" and text.startswith("-")):
            raise VllmError(
                f"the {name} '{visible(text)}' begins with a dash or holds control characters.", "bad setting"
            )
    if spec.gpu_memory is not None and not 0 < spec.gpu_memory <= 1:
        raise VllmError(f"GPU memory is a share above 0 and up to 1, not {spec.gpu_memory:g}.", "bad setting")
    for name, number in (
        ("tensor parallel", spec.tensor_parallel),
        ("data parallel", spec.data_parallel),
        ("maximum length", spec.max_model_len),
    ):
        if number is not None and number < 1:
            raise VllmError(f"{name} must be at least 1, not {number}.", "bad setting")
    line = [str(program), "serve", str(Path(spec.model).expanduser()) if spec.model.startswith("~") else spec.model]
    options: tuple[tuple[str, object], ...] = (
        ("--gpu-memory-utilization", spec.gpu_memory),
        ("--tensor-parallel-size", spec.tensor_parallel),
        ("--data-parallel-size", spec.data_parallel),
        ("--max-model-len", spec.max_model_len),
        ("--reasoning-parser", spec.reasoning_parser),
        ("--quantization", spec.quantisation),
    )
    for flag, value in options:
        if value:
            line += [flag, str(value)]
    given = _flags(spec.extra, trusted=spec.trusted)
    if "structured-outputs-config" not in given:
        line += ["--structured-outputs-config", STRUCTURED]
    if not any(name.startswith(("disable-uvicorn-access-log", "disable-access-log")) for name in given):
        line.append("--disable-uvicorn-access-log")  # a line a request would bury what matters in the log
    line += spec.extra
    return [*line, "--port", str(port), "--served-model-name", spec.name, "--host", HOST]


def _flags(words: Sequence[str], *, trusted: bool) -> list[str]:
    """The names of the flags among extra arguments. Raises VllmError for one that is not taken, however it is spelt,
    and for a word that belongs to none."""
    names: list[str] = []
    room: float = 0  # words that the flag before may still take
    for word in words:
        if not word.startswith("-") or _NUMBER.fullmatch(word):
            if room < 1:
                raise VllmError(f"'{word}' among the extra arguments belongs to no flag.", "bad setting")
            room -= 1
            continue
        name, sign, _ = word[2:].partition("=")
        name = name.replace("_", "-")
        _refuse(word, name, trusted=trusted)
        names.append(name)
        takes = name in _VALUES or name in _TRUSTED_VALUES
        room = 0 if sign or not takes else math.inf if name in _MANY else 1
    return names


def _refuse(word: str, name: str, *, trusted: bool) -> None:
    """Raises VllmError for a flag that is not on the lists."""
    bare = word.partition("=")[0]  # a value may be a key
    if not word.startswith("--") or not name:
        raise VllmError(f"'{bare}' is a short form: write the flag in full, with two dashes.", "bad setting")
    plain = name.removeprefix("no-")
    if name in _VALUES or plain in _SWITCHES:
        return
    if name in _TRUSTED_VALUES or plain in _TRUSTED_SWITCHES:
        if trusted:
            return
        raise VllmError(
            f"{bare} loads code or names files, so it is taken from the command line alone: "
            f'cimemories serve MODEL --extra "{bare} ...".',
            "bad setting",
        )
    for ours, reason in _OURS.items():
        if ours.startswith(name):
            raise VllmError(f"{bare} cannot be given as an extra argument: {reason}.", "bad setting")
    raise VllmError(
        f"{bare} is none of the flags that a managed server takes (docs/models.md lists them; they are written in "
        "full). Start vLLM yourself with it, and give its base URL.",
        "bad setting",
    )


def taken_flags() -> tuple[list[str], list[str]]:
    """The extra flags that a managed server takes from anybody, and those it takes from the command line alone."""
    return sorted(_SWITCHES | _VALUES), sorted(_TRUSTED_SWITCHES | _TRUSTED_VALUES)


def split_extra(words: Sequence[str]) -> tuple[str, ...]:
    """Extra arguments as typed, taken apart as a shell would. Raises VllmError for a quote that is left open."""
    try:
        return tuple(part for word in words for part in shlex.split(word))
    except ValueError as error:
        raise VllmError(f"the extra arguments cannot be read ({error}): {' '.join(words)}", "bad setting") from error


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of the environment looks like a key: by a word of its name, or by the shape of its value."""
    return bool(_SECRET_WORDS & set(name.upper().split("_")) or _SECRET_VALUE.match(value))


def server_environment(program: Path, environ: Mapping[str, str], ours: Path) -> dict[str, str]:
    """What vLLM gets of an environment: no keys but those that fetch weights, nothing of ours, its own programs first.

    `ours`: the folder of our package, which has no business in another Python's path. VLLM_API_KEY goes too: with it
    the server would refuse every request that carries no key.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith("CIMEMORIES_") and (_FOR_WEIGHTS.fullmatch(name) or not is_secret(name, value))
    }
    path = [entry for entry in kept.pop("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry) != ours]
    if path:
        kept["PYTHONPATH"] = os.pathsep.join(path)
    # Kernels are compiled at the first start by programs (ninja) that stand beside vllm.
    kept["PATH"] = os.pathsep.join(filter(None, [str(program.parent), kept.get("PATH", os.defpath)]))
    return kept


def secrets(environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """The values that must not reach a log, the longest first."""
    values = {value for name, value in environ.items() if is_secret(name, value) and len(value) >= _SHORTEST_SECRET}
    return tuple(sorted((value.encode(errors="surrogateescape") for value in values), key=len, reverse=True))


def without_secrets(text: bytes, values: Sequence[bytes]) -> bytes:
    """The text with each of those values replaced by [key]."""
    for value in values:
        text = text.replace(value, b"[key]")
    return text


# ---- vllm failures
#
# Why vLLM ended, read from its log and exit code, and what it is doing while it starts.
#
# The texts looked for are those of vLLM 0.10 to 0.33, of transformers and the hub's client behind it, and of CUDA. What
# is not recognised is said to be unknown and shown as vLLM's own last lines.


LAST_LINES = 12
LONGEST_LINE = 400
_PREFIX = re.compile(r"^\((?:APIServer|EngineCore|Worker|DPCoordinator)[^)]*\)\s?")
_STAMP = re.compile(r"^(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) \d\d-\d\d [\d:.]+ (?:\[[^\]]*\] )?")
_TRACE = re.compile(
    r"^\s*(?:File \"|\^|~|Traceback|During handling|The above exception|For further information)"
    r"|^ {4}|^ +warnings\.warn|^\S+resource_tracker\.py|^[ ▀▄█]*[▀▄█]"
)
_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b: ?.|^Value error, |(?:^|: )error: ")
# Ends that only say that another process ended for a reason given before.
_ECHO = re.compile(r"See (?:root cause|stack trace)|initialization failed|check the stack trace")


@dataclass(frozen=True)
class Failure:
    """cause: the kind, in two or three words. message: what it means and what to do. lines: vLLM's own words."""

    cause: str
    message: str
    lines: tuple[str, ...]


# The first that is found counts; {0}, {1}: what the groups caught.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "unknown flag",
        r"unrecognized arguments?: (.{1,200})",
        "this vLLM does not know {0}. Look the flag up in `vllm serve --help`; one that managed servers always give "
        f"means that vLLM is too old: install a newer one ({INSTALL}).",
    ),
    ("bad setting", r"error: (argument .{1,200})", "vLLM refuses a flag: {0}."),
    (
        "port in use",
        r"Address already in use|EADDRINUSE|Errno 98\b",
        "the port was taken by another program while vLLM started. Start it on another port.",
    ),
    (
        "gated model",
        r"GatedRepoError|gated repo|awaiting a review|Access to model .{1,120} is restricted",
        "the model is gated: its makers must let you in first. Accept their terms on the model's page, then set "
        "HF_TOKEN to a token of that account.",
    ),
    (
        "missing model",
        r"Repo id must be in the form[^:]*: '([^']{1,200})'",
        "there is no model at {0}: no such folder, and no name that the Hugging Face hub could have.",
    ),
    (
        "missing model",
        r"RepositoryNotFoundError|is not a local folder and is not a valid model identifier|"
        r"is not a local folder or a valid repository name",
        "the Hugging Face hub has no such model, or shows it only to those it knows. Check the spelling "
        "(maker/name), or set HF_TOKEN for a private one.",
    ),
    (
        "missing model",
        r"couldn't connect to '|LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled",
        "the model is not on this disk, and the Hugging Face hub cannot be reached from here. Give a folder that holds "
        "the model, or fetch it where there is a connection.",
    ),
    (
        "missing model",
        r"does not appear to have a file named ([\w.]+)|Invalid repository ID or local directory specified",
        "the folder or repository holds no model that vLLM can read ({0} is missing).",
    ),
    (
        "too few GPUs",
        r"World size \((\d+)\) is larger than the number of available GPUs \((\d+)\)",
        "{0} GPUs are asked for and {1} are here. Lower tensor or data parallel.",
    ),
    (
        "too few GPUs",
        r"DP adjusted local rank \d+ is out of bounds for (\d+)|invalid device ordinal|"
        r"Not enough allowed NUMA nodes to bind threads of \d+ local",
        "tensor times data parallel asks for more devices than there are here. Lower them.",
    ),
    (
        "no GPU",
        r"Failed to infer device type|No CUDA GPUs are available|Found no NVIDIA driver|no NVIDIA GPU detected|"
        r"libcuda\.so\.1: cannot open|CUDA driver version is insufficient|Torch not compiled with CUDA",
        "vLLM finds no GPU that it can use. Look at `nvidia-smi` and CUDA_VISIBLE_DEVICES; without a GPU, give the "
        "base URL of a server elsewhere.",
    ),
    (
        "out of memory",
        r"model's max seq len \((\d+)\).{0,200}?estimated maximum model length is (\d+)",
        "one request of {0} tokens does not fit into the memory that is left for the cache; {1} would. Lower the "
        "maximum length, or give vLLM a larger share of the memory.",
    ),
    (
        "out of memory",
        r"No available memory for the cache blocks|KV\s+cache is needed, which is larger than",
        "the model fits, but leaves no memory for the cache. Give vLLM a larger share of the memory, lower the maximum "
        "length, or spread the model over more GPUs (tensor parallel).",
    ),
    (
        "out of memory",
        r"Free memory on device.{0,200}?less than desired|reduce GPU memory used by other processes|"
        r"is less than requested memory for kv",
        "less memory is free than vLLM was told to take. Stop the programs that hold it, or lower the share of memory.",
    ),
    (
        "out of memory",
        r"OutOfMemoryError|CUDA out of memory|HIP out of memory|can't allocate memory|std::bad_alloc|\bMemoryError\b|"
        r"Cannot allocate memory",
        "the memory is too small for this model with these settings. Spread it over more GPUs (tensor parallel), lower "
        "the maximum length, or take a quantised or smaller model.",
    ),
    (
        "length too large",
        r"max_model_len \((\d+)\) is greater than the derived max_model_len \(max_position_embeddings=(\d+)",
        "a maximum length of {0} tokens is asked for, and the model has {1}. Lower it.",
    ),
    (
        "unknown reasoning parser",
        r"[Rr]easoning parser:? '?([\w.-]+)'?,? (?:not found|\(chose)",
        "this vLLM has no reasoning parser '{0}'; its last lines list those that it has.",
    ),
    (
        "quantisation",
        r"Unknown quantization method: ([\w.-]+)|Quantization method specified in the model config",
        "the quantisation does not fit this vLLM or this model. Leave it out for a model that is already quantised.",
    ),
    (
        "unsupported model",
        r"Model architectures? .{1,200}? (?:are|is) not supported|does not recognize this architecture|"
        r"has no vLLM implementation",
        f"this vLLM does not know the model's architecture. A newer one may: {INSTALL}.",
    ),
    (
        "code in the model",
        r"trust_remote_code=True|--trust-remote-code",
        "the model brings code of its own. Only if you trust it, add --trust-remote-code to the extra arguments.",
    ),
    ("disk full", r"No space left on device", "the disk is full. Make room, then start it again."),
)


def explain(log: str, exit_code: int | None, *, was_ready: bool = False) -> Failure:
    """Why vLLM ended. exit_code as of subprocess: below zero is the number of the signal that killed it."""
    text = _flat(log)
    lines = last_lines(log)
    when = "vLLM ended" if was_ready else "vLLM ended while it started"
    if not was_ready:
        for cause, pattern, message in _KNOWN:
            found = re.search(pattern, text)
            if found:
                groups = [group or "it" for group in found.groups()]
                return Failure(cause, message.format(*groups), lines)
    elif re.search(r"OutOfMemoryError|CUDA out of memory", text):
        return Failure("out of memory", f"{when}: the GPU's memory ran out. Lower the share of memory.", lines)
    if exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return Failure(
            "killed",
            f"{when}: it was killed from outside. Mostly the machine ran out of main memory (see `dmesg`).",
            lines,
        )
    if exit_code is not None and exit_code < 0:
        return Failure("killed", f"{when}: signal {signal.Signals(-exit_code).name} ended it.", lines)
    said = f" ({_root(log)})" if _root(log) else ""
    return Failure("ended", f"{when}, with exit code {exit_code}{said}. Its last lines and its log tell more.", lines)


def last_lines(log: str, count: int = LAST_LINES) -> tuple[str, ...]:
    """The lines at the end that say something: without stack frames, and with the first cause of an error among them
    where what follows only points back at it."""
    said = [line for line in map(_plain, log.splitlines()) if line.strip() and not _TRACE.match(line)]
    said = [line for before, line in zip(["", *said], said, strict=False) if line != before]
    tail, root = said[-count:], _root(log)
    if root and root not in tail:
        tail = [root, *tail[1 - count :]]
    return tuple(line[:LONGEST_LINE] for line in tail)


def start_step(log: str) -> str:
    """What vLLM does while it starts, told from the last thing that it said of it; '' before it says anything."""
    best = (-1, "")
    for pattern, words in _STEPS:
        place = log.rfind(pattern)
        best = max(best, (place, words)) if place >= 0 else best
    share = re.findall(r"(Loading safetensors[^:\r\n]*|Capturing CUDA graphs[^:\r\n]*):\s+(\d+)%", log[best[0] :])
    return f"{best[1]} ({share[-1][1]} %)" if share else best[1]


_STEPS: Sequence[tuple[str, str]] = (
    ("non-default args", "reading the model's settings"),
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("Starting to load model", "loading the model"),
    ("Loading safetensors", "loading weights"),
    ("Downloading", "fetching weights"),
    ("Loading weights took", "preparing the model"),
    ("Dynamo bytecode", "compiling"),
    ("Cache the graph", "compiling"),
    ("GPU KV cache size", "making the cache"),
    ("CPU KV cache size", "making the cache"),
    ("Capturing CUDA graph", "recording CUDA graphs"),
    ("Graph capturing finished", "warming up"),
    ("init engine", "opening the port"),
)


def _plain(line: str) -> str:
    """A line without the process and the time that vLLM puts before it; of a progress bar its last state."""
    line = line.rsplit("\r", 1)[-1] if "\r" in line.rstrip("\r") else line.rstrip("\r")
    return _STAMP.sub("", _PREFIX.sub("", line)).rstrip()


def _flat(log: str) -> str:
    """The log as one line, so that a message that was wrapped is found."""
    return " ".join(" ".join(_plain(line) for line in log.splitlines()).split())


def _root(log: str) -> str:
    """The first error of the log's last part that is more than an echo of another; '' where there is none."""
    for line in reversed(log.splitlines()):
        plain = _plain(line)
        if _ERROR.search(plain) and not _ECHO.search(plain) and not _TRACE.match(plain):
            return plain.strip()
    return ""


# ---- vllm metrics
#
# What a vLLM server says of itself at /metrics (Prometheus text): load, speed, prefix cache, KV cache.
#
#     vllm:num_requests_running{engine="0",model_name="qwen3"} 3.0
#     vllm:generation_tokens_total{engine="0",model_name="qwen3"} 51200.0
#
# The names are those of vLLM's own metrics/loggers.py; what a data-parallel server says of each engine is added up.


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


# ---- vllm state
#
# What is known of each managed server: one small JSON file in WORKSPACE/servers, replaced as a whole at each change.
#
#     {"id": "server-1f0c9a2b", "model": "Qwen/Qwen3-8B", "port": 8000, "phase": "ready", "keep": false, ...}
#
# The supervisor of a server writes its file; whoever reads it also looks whether the processes named in it still live.
#
# A workspace may come from somebody else, and its state files may name any path and any process. So nothing is taken
# from one that says what to read, delete or signal: its name gives the id, the id gives the log, and a process is ours
# only while it holds the server's lock file open, which the supervisor opens and hands on to vLLM.


_ID = re.compile(r"server-[0-9a-z]{1,32}")
_LARGEST_STATE = 1_000_000  # bytes
LARGEST_PID = 2**31 - 1  # of any system; psutil raises errors of its own for others
START_SECONDS = 20.0  # how long a supervisor may take to write its first word
Moment = Annotated[float, Field(ge=0, le=253_402_300_799)]  # seconds since the epoch, up to the last that has a date


class Phase(StrEnum):
    """Where a server stands. `stopped`: on request, or with what started it. `failed`: by itself."""

    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    FAILED = "failed"


LIVE = (Phase.STARTING, Phase.READY)


class Process(BaseModel):
    """A process, told from a later one of the same number by its start time (seconds since the epoch)."""

    model_config = ConfigDict(frozen=True)

    pid: int = Field(ge=1, le=LARGEST_PID)
    started: Moment

    @property
    def alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True

    def holds(self, lock: Path) -> bool:
        """Whether it is alive and has this file open: what a process of ours can be told by, whoever wrote its number
        down. False where that may not be looked up: it is another user's then."""
        try:
            opened = psutil.Process(self.pid).open_files()
        except psutil.Error:
            return False
        return self.alive and str(lock) in {file.path for file in opened}


def process_of(pid: int) -> Process:
    """Raises psutil.NoSuchProcess where there is none."""
    return Process(pid=pid, started=psutil.Process(pid).create_time())


class ServerState(BaseModel):
    """One managed server. Times are seconds since the epoch.

    owner: what it stops with; None where it is to be left running. step: what it does while it starts. cause, error
    and lines: why it failed, and vLLM's own last lines.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    host: str
    model: str
    served_name: str
    port: int = Field(ge=1, le=65535)
    command: tuple[str, ...]
    started_by: str
    keep: bool
    created: Moment
    log: str = ""  # where it is read from a file, it follows from the id
    owner: Process | None = None
    supervisor: Process | None = None
    server: Process | None = None
    phase: Phase = Phase.STARTING
    step: str = ""
    ready: Moment | None = None
    ended: Moment | None = None
    exit_code: int | None = None
    cause: str = ""
    error: str = ""
    lines: tuple[str, ...] = ()

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self.port}/v1"

    @property
    def live(self) -> bool:
        return self.phase in LIVE

    @property
    def here(self) -> bool:
        """Whether it runs on this machine: a workspace may be shared by several."""
        return self.host == socket.gethostname()


def state_folder(workspace: Path) -> Path:
    return workspace / "servers"


def state_path(workspace: Path, server_id: str) -> Path:
    return state_folder(workspace) / f"{server_id}.json"


def log_of(path: Path) -> Path:
    """The log of the server whose state is in this file."""
    return path.parent.parent / "logs" / f"{path.stem}.log"


def lock_of(path: Path) -> Path:
    """The file that the processes of a server hold open. Only the folder is resolved: a link in the place of the file
    could name one that another process has open."""
    return path.parent.resolve() / f"{path.stem}.lock"


def open_lock(path: Path) -> int:
    """Open a lock file without following a link: one that was put there would have something else emptied."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def save_state(path: Path, state: ServerState) -> None:
    """Replace the file as a whole, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(handle, "w", encoding="utf-8") as stream:
        stream.write(state.model_dump_json(indent=1))
    os.replace(draft, path)


def read_regular(path: Path, size: int, *, end: bool = False) -> bytes:
    """At most so many bytes of a file, its last ones where `end`. Raises OSError for a link, and for what is no regular
    file: a FIFO would be waited for without end."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as stream:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(f"{path} is no regular file")
        stream.seek(max(0, about.st_size - size) if end else 0)
        return stream.read(size)


def load_state(path: Path) -> ServerState | None:
    """What the file says; None where it is gone, says nothing that can be read, or is about another server."""
    if not _ID.fullmatch(path.stem):
        return None
    try:
        state = ServerState.model_validate_json(read_regular(path, _LARGEST_STATE))
    except (OSError, ValidationError):
        return None
    return state.model_copy(update={"log": str(log_of(path))}) if state.id == path.stem else None


def observed(path: Path, state: ServerState) -> ServerState:
    """The state in a file as a person should see it: a server whose processes are gone is not ready, whatever its file
    says."""
    if not state.live or not state.here:
        return state
    if state.supervisor is None:
        late = time.time() - state.created > START_SECONDS
        return state.model_copy(update=_gone("its supervisor did not start")) if late else state
    lock = lock_of(path)
    if state.supervisor.holds(lock) or (state.server is not None and state.server.holds(lock)):
        return state
    return state.model_copy(update=_gone("the process that watched over it was killed, and it is gone too"))


def _gone(why: str) -> dict[str, object]:
    return {"phase": Phase.FAILED, "cause": "supervisor gone", "error": f"{why}. Start it again."}


def all_states(workspace: Path) -> list[ServerState]:
    """Every server of a workspace as it is now: the living first, then the newest."""
    found = [(path, load_state(path)) for path in state_folder(workspace).glob("server-*.json")]
    states = [observed(path, state) for path, state in found if state is not None]
    return sorted(states, key=lambda state: (not state.live, -state.created))


def state_named(workspace: Path, name: str) -> ServerState:
    """A server by its id, by the port of a living one, or by the newest that had that port. Raises VllmError."""
    states = all_states(workspace)
    for state in states:
        if name in (state.id, str(state.port)):
            return state
    there = ", ".join(f"{state.id} (port {state.port})" for state in states if state.live) or "none is running"
    raise VllmError(f"there is no managed server '{name}' in this workspace: {there}.", "no such server")


@contextmanager
def reserving(workspace: Path) -> Iterator[None]:
    """One at a time chooses a port and writes down that it is taken."""
    path = state_folder(workspace) / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open_lock(path)
    except OSError as error:
        raise VllmError(f"{path} cannot be used ({error.strerror}). Remove it, then try again.", "no folder") from error
    with open(handle, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
