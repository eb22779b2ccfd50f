"""The user's own vLLM: the path of its program, the command line that serves a model, and its environment.

vLLM brings its own torch and lives in an environment of its own: nothing of it is imported here."""

from __future__ import annotations

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
# Flags that a page or a record may set: of vLLM 0.10 to 0.33, those of size, speed and precision. Others may load code,
# read files or name other servers. Each is matched by its whole name, because argparse takes `--ho` for `--host`.
_HARMLESS = """
    aggregate-engine-logging all2all-backend api-server-count async-scheduling attention-backend block-size
    chat-template-content-format cpu-offload-gb cudagraph-capture-sizes data-parallel-backend data-parallel-size
    data-parallel-size-local decode-context-parallel-size device device-ids disable-access-log-for-endpoints
    disable-cascade-attn disable-custom-all-reduce disable-fastapi-docs disable-hybrid-kv-cache-manager
    disable-log-requests disable-log-stats disable-sliding-window disable-uvicorn-access-log
    distributed-timeout-seconds dtype enable-auto-tool-choice enable-chunked-prefill enable-dbo enable-eplb
    enable-expert-parallel enable-flashinfer-autotune enable-force-include-usage enable-log-requests
    enable-prefix-caching enable-prompt-tokens-details enable-server-load-tracking enforce-eager
    expert-placement-strategy gpu-memory-utilization kv-cache-dtype kv-cache-memory-bytes
    kv-sharing-fast-prefill language-model-only limit-mm-per-prompt linear-backend log-error-stack logprobs-mode
    long-prefill-token-threshold max-cudagraph-capture-size max-log-len max-logprobs max-model-len
    max-num-batched-tokens max-num-queued-reqs max-num-queued-tokens max-num-scheduled-tokens max-num-seqs
    max-parallel-loading-workers mm-processor-cache-gb moe-backend num-gpu-blocks-override numa-bind
    optimization-level override-generation-config performance-mode pipeline-parallel-size
    prefill-context-parallel-size prefix-caching-hash-algo quantization reasoning-parser renderer-num-workers
    response-role revision safetensors-load-strategy scheduling-policy seed skip-mm-profiling stream-interval
    swap-space tensor-parallel-size tokenizer-revision tool-call-parser use-tqdm-on-load uvicorn-log-level
"""
HARMLESS = frozenset(_HARMLESS.split())
_NUMBER = re.compile(r"-\d+(?:\.\d+)?")
_SECRET_WORDS = frozenset(("KEY", "KEYS", "APIKEY", "TOKEN", "TOKENS", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS"))
# By its shape: the keys of well-known makers, and an address with a password in it.
_SECRET_VALUE = re.compile(r"(?:sk-|hf_|gsk_|xai-|AIza|ghp_)\S{8,}|\w+://[^/\s:@]*:[^/\s@]+@")
# Variables that fetching a model's weights may need.
_FOR_WEIGHTS = re.compile(r"(?:HF_|HUGGING_FACE_|AWS_).*|.*_PROXY", re.IGNORECASE)
_SHORTEST_SECRET = 6  # characters; shorter values occur in ordinary words, which would vanish from the log


class VllmError(Exception):
    """A server that could not be started, or failed. The message says what happened and what to do next. cause: the
    kind, if vLLM itself failed or is not ready; lines: the last ones that vLLM wrote."""

    def __init__(self, message: str, cause: str = "", lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.cause = cause
        self.lines = tuple(lines)


@dataclass(frozen=True)
class ServerSpec:
    """A server to be started.

    model: a name on the Hugging Face hub, or a folder. flags: of `vllm serve`. port: by default the first free one from
    8000. served_name: its name in requests; by default the model's name. keep: leave it running when its starter ends.
    trusted: given at the command line, so that flags which load code or name files are taken."""

    model: str
    flags: tuple[str, ...] = ()
    port: int | None = None
    served_name: str = ""
    keep: bool = False
    trusted: bool = False

    def filled(self, preset: Preset) -> ServerSpec:
        """Return the spec with missing fields taken from a preset. Raises VllmError for a model that its maker
        serves."""
        if preset.serve is None:
            raise VllmError(
                f"{preset.title} is served by its maker at {preset.base_url}, not by vLLM. Use that base URL with the "
                f"key in ${preset.api_key_env}."
            )
        return replace(
            self,
            model=self.model or preset.name,
            served_name=self.served_name or preset.name,
            flags=(*preset.serve.flags.split(), *self.flags),  # of a flag given twice vLLM takes the last
        )

    @property
    def name(self) -> str:
        """Return the model's name in requests."""
        return self.served_name or (Path(self.model).name if is_path(self.model) else self.model)

    def number(self, flag: str) -> int | None:
        """Return the whole number that a flag sets, or None."""
        found = re.findall(rf"(?:^|\0)--{flag}[=\0](\d+)(?=\0|$)", "\0".join(self.flags))
        return int(found[-1]) if found else None


def is_path(model: str) -> bool:
    """Return whether a model's name can only be a path, or is that of an existing folder."""
    return model.startswith(("/", "./", "../", "~")) or Path(model).is_dir()


def find_program(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's `vllm`: the one that CIMEMORIES_VLLM names, else on PATH, else in ~/vllm. Raises VllmError if
    none can be run."""
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
    """Return the command line; of a flag given twice vLLM takes the last, so the flags for its address stand last.
    Raises VllmError for a setting that is invalid or that a managed server must not be given."""
    if not spec.model.strip() or spec.model.startswith("-"):
        raise VllmError(f"'{spec.model}' is not a model. Give a name on the Hugging Face hub or a folder.")
    for text in (spec.model, spec.name, *spec.flags):
        if has_control(text):
            raise VllmError(f"'{visible(text)}' holds control characters.")
    if spec.name.startswith("-"):
        raise VllmError(f"the served name '{spec.name}' starts with a dash.")
    line = [str(program), "serve", str(Path(spec.model).expanduser()) if spec.model.startswith("~") else spec.model]
    names = [_flag(word, trusted=spec.trusted) for word in spec.flags if word.startswith("-")]
    if "structured-outputs-config" not in names:
        line += ["--structured-outputs-config", STRUCTURED]
    if not any(name.startswith(("disable-uvicorn-access-log", "disable-access-log")) for name in names):
        line.append("--disable-uvicorn-access-log")  # a line a request would bury the other lines of the log
    return [*line, *spec.flags, "--port", str(port), "--served-model-name", spec.name, "--host", HOST]


def _flag(word: str, *, trusted: bool) -> str:
    """Return the name of a flag, '' for a negative number. Raises VllmError for one that is not allowed."""
    if _NUMBER.fullmatch(word):
        return ""
    bare = word.partition("=")[0]  # the value may be a key
    name = bare[2:].replace("_", "-")
    if not bare.startswith("--") or not name:
        raise VllmError(f"'{bare}' is a short form. Write the flag in full, with two dashes.")
    # argparse takes an abbreviation for the flag in full.
    for ours, reason in _OURS.items():
        if ours.startswith(name):
            raise VllmError(f"{bare} cannot be given: {reason}.")
    if not trusted and name not in HARMLESS and name.removeprefix("no-") not in HARMLESS:
        raise VllmError(
            f"{bare} may load code or name files, so it can be set only from the command line: cimemories serve MODEL "
            f"{bare} ... (docs/models.md lists the others, written in full)."
        )
    return name


def split_words(text: str) -> tuple[str, ...]:
    """Split typed text as a shell would. Raises VllmError for an unclosed quote."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise VllmError(f"this cannot be read ({error}): {text}") from error


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
    # The longest first: a secret that is part of another, replaced first, would leave the rest.
    # surrogateescape: bytes that are no UTF-8 come back as they stand in the environment.
    return tuple(sorted((value.encode(errors="surrogateescape") for value in values), key=len, reverse=True))


def without_secrets(text: bytes, values: Sequence[bytes]) -> bytes:
    """Return the text with each of those values replaced by [key]."""
    for value in values:
        text = text.replace(value, b"[key]")
    return text
