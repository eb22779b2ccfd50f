"""The container files, as far as they can be read without building: what must hold of them whatever else changes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from executing import eventually
from typer.testing import CliRunner

from cimemories.access import readonly
from cimemories.access.guard import MODE
from cimemories.cli import cli

ROOT = Path(__file__).resolve().parent.parent
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
STEPS = re.findall(r"^([A-Z]+) (.+)$", CONTAINERFILE.replace("\\\n", " "), re.MULTILINE)


def of(instruction: str) -> list[str]:
    return [rest for name, rest in STEPS if name == instruction]


def test_the_image_copies_all_that_the_wheel_is_built_of() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    copied = {path for step in of("COPY") if not step.startswith("--from") for path in step.split()[:-1]}
    assert {*wheel["only-include"], *wheel["force-include"], "pyproject.toml", "README.md", "LICENSE"} <= copied
    assert not [path for path in copied if not (ROOT / path).exists()]


def test_the_image_installs_what_the_forms_offer_first_and_what_a_login_needs() -> None:
    """The lock has the extras `memory` and `team`, at the pinned versions; all extras are resolved together."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pins, locked = (
        dict(
            re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^ ;\\\n]+)", path.read_text(encoding="utf-8").lower(), re.MULTILINE)
        )
        for path in (ROOT / "constraints.txt", ROOT / "deploy" / "requirements.txt")
    )
    names = [re.split(r"[<>=\[]", item)[0] for extra in ("memory", "team") for item in extras[extra]]
    assert names and {name: locked.get(name) for name in names} == {name: pins[name] for name in names}
    resolved = set(re.findall(r"--extra (\w+)", (ROOT / "Makefile").read_text(encoding="utf-8").split("\nresolve:")[1]))
    assert resolved == extras.keys() - {"docs", "vllm"}  # docs is a part of dev, and vllm has its own environment


def test_the_app_is_run_by_nobody_special_and_watched() -> None:
    assert of("USER") == ["1000"]
    # After it nothing is installed.
    after = CONTAINERFILE.split("\nUSER ")[1]
    assert "RUN " not in after
    assert "/_stcore/health" in of("HEALTHCHECK")[0]
    assert all("--require-hashes" in step or "--no-deps" in step for step in of("RUN") if "pip install" in step)


def test_the_images_command_is_one_that_the_app_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of("ENTRYPOINT") == ['["cimemories"]']
    (arguments,) = (yaml.safe_load(step) for step in of("CMD"))
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr("os.execvpe", lambda _program, *rest: started.append(rest))  # type: ignore[arg-type]
    monkeypatch.setattr("cimemories.serving._require_free", lambda _port: None)
    done = CliRunner().invoke(cli, [*arguments, "--no-demo"], env={"CIMEMORIES_WORKSPACE": str(tmp_path / "w")})
    assert done.exit_code == 0, done.output
    ((command, environment),) = started
    assert command[-2:] == ["--server.address", "0.0.0.0"]
    assert environment[MODE] == "token"  # nobody can be told by their connection there
    assert readonly.READ_ONLY not in environment


def test_only_this_machine_reaches_what_compose_starts() -> None:
    ports = {name: service.get("ports", []) for name, service in COMPOSE["services"].items()}
    assert ports == {"app": ["127.0.0.1:${PORT:-8501}:8501"], "database": [], "vllm": []}
    assert COMPOSE["services"]["vllm"]["profiles"] == ["gpu"]
    text = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    # No password has a default: compose refuses to start without one.
    assert set(re.findall(r"\$\{POSTGRES_PASSWORD(:[?-])", text)) == {":?"}
    assert (ROOT / "deploy" / COMPOSE["services"]["app"]["build"]["context"] / "deploy" / "Containerfile").exists()


def test_what_starts_ray_names_options_that_there_are() -> None:
    """A cluster's manifests run our command with options that it takes, and the Ray that is pinned."""
    deploy = ROOT / "deploy"
    job = yaml.safe_load((deploy / "ray-job.yaml").read_text(encoding="utf-8"))
    task = yaml.safe_load((deploy / "skypilot.yaml").read_text(encoding="utf-8"))
    texts = [job["spec"]["entrypoint"], task["run"], (deploy / "ray.sbatch").read_text(encoding="utf-8")]
    options = {option for command in ("run", "resume") for option in re.findall(r"--[a-z][a-z-]+", _help(command))}
    for text in texts:
        command = text[text.rindex("cimemories ") :]
        assert re.search(r"--engine \"?ray:", command)
        assert set(re.findall(r"--[a-z][a-z-]+", command)) <= options
    (pin,) = re.findall(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == pin
    assert f"=={pin}" in (deploy / "Containerfile.ray").read_text(encoding="utf-8")


# Of Slurm, Ray and our command: what ray.sbatch asks of them. The second node is reached from 127.0.0.1.
STAND_INS = {
    "scontrol": 'case "$2" in hostnames) echo one; echo two;; show) echo "NodeName=$4 NodeAddr=127.0.0.1 X=1";; esac',
    "srun": "echo $$ > srun.pid; exec sleep 60",
    "scancel": 'echo "$*" > scancel.txt; kill $(cat srun.pid)',
    "ray": "test -e srun.pid",
    "cimemories": """
        sleep 60 &
        trap 'kill $!; exit 7' TERM
        echo "$RAY_AUTH_MODE ${#RAY_AUTH_TOKEN} $*" > called.txt
        [ "$1" = run ] && { kill $!; exit 3; }
        wait""",
}


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_a_slurm_job_ends_as_its_command_does_and_hands_slurms_notice_to_it(tmp_path: Path, verb: str) -> None:
    """It leaves no Ray, says by its status how the command ended, and each job's cluster has a port and a token."""
    for name, text in STAND_INS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    slurm = {"JOB_ID": "10007", "JOB_NODELIST": "one,two", "JOB_NUM_NODES": "2", "CPUS_PER_TASK": "8"}
    job = subprocess.Popen(
        ["bash", ROOT / "deploy/ray.sbatch", verb, "-d", "small"],
        env={f"SLURM_{name}": value for name, value in slurm.items()}
        | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CIMEMORIES_DATABASE_URL": "postgresql://db/x",
            "WORKERS": "2:4",
        },
        cwd=tmp_path,
    )
    called = tmp_path / "called.txt"
    if verb == "resume":
        eventually(lambda: called.exists() and called.read_text() != "", 30)
        job.send_signal(signal.SIGTERM)  # as Slurm does shortly before the time limit
    assert job.wait(30) == (3 if verb == "run" else 7)
    options = "--engine ray:address=127.0.0.1:20007,workers=2:4 -d small"
    assert called.read_text() == f"token 64 {verb} {options}\n"
    assert (tmp_path / "scancel.txt").read_text() == "--quiet --signal=KILL 10007.0\n"


def _help(command: str) -> str:
    return CliRunner().invoke(cli, [command, "--help"], env={"COLUMNS": "200"}).output
