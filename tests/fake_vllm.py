"""A program that behaves as `vllm serve` does where it matters here: its words, its exits, /health and /metrics.

`install(folder)` makes it `folder/bin/vllm`. The name of the model says what it does: one of ENDINGS prints that and
exits; `stubborn` cannot be asked to end; `with-engines` starts a process of its own; `never-ready` starts for ever;
`tells-keys` prints its environment; anything else becomes ready at once.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ENDINGS = {
    "org/unknown-flag": (2, "usage: vllm [-h] [-v]\nvllm: error: unrecognized arguments: --from-the-future"),
    "org/no-gpu": (1, "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING`"),
    "org/too-many-gpus": (
        1,
        "ValueError: World size (8) is larger than the number of available GPUs (2) in this node. If this is\n"
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ),
    "org/too-large": (
        1,
        "(EngineCore pid=7) ERROR 11-21 13:02:38 [core.py:1510] torch.OutOfMemoryError: CUDA out of memory. Tried to "
        "allocate 2.00 GiB.\n" + 'File "core.py", line 1\n' * 30 + "RuntimeError: Engine core initialization failed. "
        "See root cause above. Failed core proc(s): {}",
    ),
    "org/cache-too-small": (
        1,
        "ValueError: To serve at least one request with the model's max seq len (40960), (5.62 GiB KV cache is needed,"
        " which is larger than the available KV cache memory (2.10 GiB). Based on the available memory, the estimated "
        "maximum model length is 15280. Try increasing `gpu_memory_utilization`",
    ),
    "org/gated": (1, "huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url x."),
    "org/no-such-model": (1, "OSError: org/no-such-model is not a local folder and is not a valid model identifier"),
    "org/no-hub": (1, "OSError: We couldn't connect to 'the hub' to load the files, and couldn't find them"),
    "org/port-taken": (1, "OSError: [Errno 98] Address already in use"),
    "org/parser": (1, "KeyError: \"Reasoning parser 'qwen9' not found. Available parsers: deepseek_r1, qwen3\""),
    "org/riddle": (3, "INFO 11-21 13:00:00 [a.py:1] hello\nSomethingError: the moon is in the wrong phase"),
    "org/killed": (-9, "INFO 11-21 13:00:00 [a.py:1] Starting to load model org/killed..."),
}
METRICS = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 800.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.2e+03
vllm:generation_tokens_total{engine="0",model_name="m"} 300.0
vllm:generation_tokens_total{engine="1",model_name="m"} 200.0
"""


def install(folder: Path) -> Path:
    """The environment of a fake vLLM: `folder`, with bin/vllm in it."""
    program = folder / "bin" / "vllm"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable} -S\n{Path(__file__).read_text(encoding='utf-8')}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = METRICS if self.path == "/metrics" else "{}"
        self.send_response(200 if self.path in ("/health", "/metrics") else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


def serve(model: str, port: int) -> None:
    say(f"(APIServer pid=1) INFO 11-21 13:00:00 [api_utils.py:286] non-default args: {sys.argv[1:]}")
    if model in ENDINGS:
        code, log = ENDINGS[model]
        say(log)
        if code < 0:
            os.kill(os.getpid(), -code)
        sys.exit(code)
    if model == "org/stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if model == "org/with-engines":
        engine = subprocess.Popen(["sleep", "300"])
        say(f"engine {engine.pid}")
    if model == "org/tells-keys":
        say(json.dumps(dict(os.environ)))
    say("Starting to load model")
    if model == "org/never-ready":
        signal.pause()
    ThreadingHTTPServer(("127.0.0.1", port), Answers).serve_forever()


if __name__ == "__main__":
    serve(sys.argv[2], int(sys.argv[sys.argv.index("--port") + 1]))
