"""The user's own vLLM: where its program is, the command line that serves a model, and the environment that it gets.

vLLM brings its own torch and lives in an environment of its own: nothing of it is imported here.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cimemories.text import has_control, visible

if TYPE_CHECKING:
    from cimemories.seeds.presets import Preset

VLLM = "CIMEMORIES_VLLM"
INSTALL = "python -m venv ~/vllm && ~/vllm/bin/pip install vllm"
HOST = "127.0.0.1"
# Without it small models pad JSON with white space up to the token limit.
STRUCTURED = '{"backend":"xgrammar","disable_any_whitespace":true}'
_OURS = {
    "host": "managed servers listen on this machine only",
    "port": "use the option for the port",
    "uds": "managed servers listen on a port",
    "api-key": "a managed server listens on this machine only and needs no key",
    "hf-token": "set HF_TOKEN in the environment instead, so that it is recorded nowhere",
    "served-model-name": "use the option for the served name",
    "model": "use the option for the model",
    "config": "give the flags themselves instead of a file of flags",
    "allowed-origins": "web pages of other origins must not reach a managed server",
    "ssl-keyfile": "a managed server listens on this machine only, without TLS",
    "ssl-certfile": "a managed server listens on this machine only, without TLS",
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What a managed server takes beside the options of its own: of vLLM 0.10 to 0.33, what sets size, speed and precision.
# Each is matched by its whole name, because argparse takes `--ho` for `--host`.
SWITCHES = _names(
    """aggregate-engine-logging async-scheduling disable-cascade-attn disable-custom-all-reduce disable-fastapi-docs
    disable-hybrid-kv-cache-manager disable-log-requests disable-log-stats disable-sliding-window
    disable-uvicorn-access-log enable-auto-tool-choice enable-chunked-prefill enable-dbo enable-eplb
    enable-expert-parallel enable-flashinfer-autotune enable-force-include-usage enable-log-requests
    enable-prefix-caching enable-prompt-tokens-details enable-server-load-tracking enforce-eager
    kv-sharing-fast-prefill language-model-only log-error-stack numa-bind skip-mm-profiling
    use-tqdm-on-load"""
)
VALUES = _names(
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
TRUSTED_SWITCHES = _names("enable-lora enable-prompt-embeds trust-remote-code trust-request-chat-template")
TRUSTED_VALUES = _names(
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
_SHORTEST_SECRET = 6  # characters; shorter values stand in ordinary words, which would vanish from the log


class VllmError(Exception):
    """A server could not be started, or failed. The message says what happened and what to do next. cause: the kind, if
    vLLM itself failed or is not ready; lines: the last ones that vLLM wrote."""

    def __init__(self, message: str, cause: str = "", lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.cause = cause
        self.lines = tuple(lines)


@dataclass(frozen=True)
class ServerSpec:
    """A server to be started. What is None or empty is left to vLLM.

    model: a name on the Hugging Face hub, or a folder. served_name: what requests call it; by default the model's name.
    port: by default the first free one from 8000. gpu_memory: share of each GPU's memory, 0 to 1. keep: leave it
    running when what started it ends. trusted: given at the command line, so that flags which load code or name files
    are taken.
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

    def filled(self, preset: Preset) -> ServerSpec:
        """Return the spec with what it leaves out taken from a preset. Raises VllmError for a model that its maker
        serves."""
        if preset.serve is None:
            raise VllmError(
                f"{preset.title} is served by its maker at {preset.base_url}, not by vLLM. Use that base URL with the "
                f"key in ${preset.api_key_env}."
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
        """Return what requests call the model."""
        return self.served_name or (Path(self.model).name if is_path(self.model) else self.model)


def is_path(model: str) -> bool:
    """Return whether a model's name can only be a path, or is that of a folder that exists."""
    return model.startswith(("/", "./", "../", "~")) or Path(model).is_dir()


def find_program(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's `vllm`: what CIMEMORIES_VLLM names, else on PATH, else in ~/vllm. Raises VllmError if there is
    none that can be run."""
    environ = os.environ if environ is None else environ
    setting = environ.get(VLLM, "").strip()
    if setting:
        named = Path(setting).expanduser()
        places = [named, named / "bin" / "vllm", named / "vllm"]
    else:
        on_path = shutil.which("vllm", path=environ.get("PATH", ""))
        places = [Path(on_path)] if on_path else []
        places.append(Path(environ.get("HOME", "~"), "vllm", "bin", "vllm").expanduser())
    for path in places:
        if path.is_file() and os.access(path, os.X_OK):
            return path.absolute()
    raise VllmError(
        f"{VLLM} names {setting}, where there is no `vllm` that can be run. Name the program itself or the "
        f"environment it is installed in (created by: {INSTALL})."
        if setting
        else f"there is no `vllm` on PATH or in ~/vllm. Install it into its own environment: {INSTALL}   "
        f"(or set {VLLM} to where it is, or give the base URL of a server that already runs)."
    )


def server_command(program: Path, spec: ServerSpec, port: int) -> list[str]:
    """Return the command line; of a flag given twice vLLM takes the last, so what decides where it listens stands last.
    Raises VllmError for a setting that is not valid or that a managed server must not be given."""
    if not spec.model.strip() or spec.model.startswith("-"):
        raise VllmError(f"'{spec.model}' is not a model. Give a name on the Hugging Face hub or a folder.")
    texts = {
        "model": spec.model,
        "served name": spec.name,
        "reasoning parser": spec.reasoning_parser,
        "quantisation": spec.quantisation,
    }
    refused = [(name, text) for name, text in texts.items() if text.startswith("-") or has_control(text)]
    # Extra arguments begin with dashes by nature; _flags looks at those.
    refused += [("extra argument", argument) for argument in spec.extra if has_control(argument)]
    for name, text in refused:
        raise VllmError(f"the {name} '{visible(text)}' starts with a dash or holds control characters.")
    if spec.gpu_memory is not None and not 0 < spec.gpu_memory <= 1:
        raise VllmError(f"GPU memory must be a share above 0 and at most 1, not {spec.gpu_memory:g}.")
    numbers = {"tensor parallel": spec.tensor_parallel, "data parallel": spec.data_parallel}
    for name, number in {**numbers, "maximum length": spec.max_model_len}.items():
        if number is not None and number < 1:
            raise VllmError(f"{name} must be at least 1, not {number}.")
    line = [str(program), "serve", str(Path(spec.model).expanduser()) if spec.model.startswith("~") else spec.model]
    options = {
        "--gpu-memory-utilization": spec.gpu_memory,
        "--tensor-parallel-size": spec.tensor_parallel,
        "--data-parallel-size": spec.data_parallel,
        "--max-model-len": spec.max_model_len,
        "--reasoning-parser": spec.reasoning_parser,
        "--quantization": spec.quantisation,
    }
    for flag, value in options.items():
        if value:
            line += [flag, str(value)]
    given = _flags(spec.extra, trusted=spec.trusted)
    if "structured-outputs-config" not in given:
        line += ["--structured-outputs-config", STRUCTURED]
    if not any(name.startswith(("disable-uvicorn-access-log", "disable-access-log")) for name in given):
        line.append("--disable-uvicorn-access-log")  # a line a request would bury what matters in the log
    line += spec.extra  # after our options: of a flag given twice vLLM takes the last
    return [*line, "--port", str(port), "--served-model-name", spec.name, "--host", HOST]


def _flags(arguments: Sequence[str], *, trusted: bool) -> list[str]:
    """Return the names of the flags among extra arguments. Raises VllmError for one that is not taken, however it is
    spelt, and for a word that belongs to none."""
    names: list[str] = []
    room: float = 0  # values that the flag before may still take
    for argument in arguments:
        # argparse takes -1 for a value, not for a flag.
        if not argument.startswith("-") or _NUMBER.fullmatch(argument):
            if room < 1:
                raise VllmError(f"'{argument}' among the extra arguments belongs to no flag.")
            room -= 1
            continue
        bare, sign, _ = argument.partition("=")  # a value may be a key
        name = bare[2:].replace("_", "-")
        if not bare.startswith("--") or not name:
            raise VllmError(f"'{bare}' is a short form. Write the flag in full, with two dashes.")
        plain = name.removeprefix("no-")
        loads = name in TRUSTED_VALUES or plain in TRUSTED_SWITCHES
        if loads and not trusted:
            raise VllmError(
                f"{bare} loads code or names files, so it can be set only from the command line: "
                f'cimemories serve MODEL --extra "{bare} ...".'
            )
        if not (loads or name in VALUES or plain in SWITCHES):
            # An abbreviation is refused in any case; here it gets the reason of the flag that argparse would take it
            # for.
            for ours, reason in _OURS.items():
                if ours.startswith(name):
                    raise VllmError(f"{bare} cannot be an extra argument: {reason}.")
            raise VllmError(
                f"a managed server does not take the flag {bare} (docs/models.md lists those it takes, written in "
                "full). Start vLLM with it yourself, and give its base URL."
            )
        names.append(name)
        # `--flag=value` takes no further word; a switch takes none at all.
        takes = not sign and (name in VALUES or name in TRUSTED_VALUES)
        room = (math.inf if name in _MANY else 1) if takes else 0
    return names


def split_extra(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return extra arguments as typed, taken apart as a shell would. Raises VllmError for a quote that is left open."""
    try:
        return tuple(part for argument in arguments for part in shlex.split(argument))
    except ValueError as error:
        raise VllmError(f"the extra arguments cannot be read ({error}): {' '.join(arguments)}") from error


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable looks like a key: by a word of its name, or by the shape of its value."""
    return bool(_SECRET_WORDS & set(name.upper().split("_")) or _SECRET_VALUE.match(value))


def server_environment(program: Path, environ: Mapping[str, str], ours: Path) -> dict[str, str]:
    """Return the environment of vLLM: no keys but those that fetch weights (VLLM_API_KEY would make the server refuse
    requests), nothing of ours, its own programs first. ours: the folder of our package."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith("CIMEMORIES_") and (_FOR_WEIGHTS.fullmatch(name) or not is_secret(name, value))
    }
    path = [entry for entry in kept.pop("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry) != ours]
    if path:
        kept["PYTHONPATH"] = os.pathsep.join(path)
    # Kernels are compiled at the first start by programs (ninja) that stand beside vllm, not beside a link to it.
    beside = dict.fromkeys((str(program.resolve().parent), str(program.parent)))
    kept["PATH"] = os.pathsep.join(filter(None, [*beside, kept.get("PATH", os.defpath)]))
    return kept


def secrets(environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the values that must not reach a log, the longest first."""
    values = {value for name, value in environ.items() if is_secret(name, value) and len(value) >= _SHORTEST_SECRET}
    # The longest first: where one secret is a part of another, replaced first, it would leave the rest standing.
    # surrogateescape: bytes that are no UTF-8 come back as they stand in the environment.
    return tuple(sorted((value.encode(errors="surrogateescape") for value in values), key=len, reverse=True))


def without_secrets(text: bytes, values: Sequence[bytes]) -> bytes:
    """Return the text with each of those values replaced by [key]."""
    for value in values:
        text = text.replace(value, b"[key]")
    return text
