"""The wheel, installed where there is no checkout: it is built once, and used from a folder of somebody else's.

What it depends on is not installed again: its environment sees the packages of the one that runs the tests.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest
import serving
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

ROOT = serving.ROOT
# What the app does at a press of "Start the run": a worker of its own, started in the folder that the app was.
WORKER = """
import time
from cimemories import installation, launch
from cimemories.evaluation import planning
from cimemories.model import WorkStatus
from cimemories.store import runs
from cimemories.store.engine import open_store

assert "PYTHONPATH" not in installation.environment()
store = open_store("data/workspace")
spec = planning.RunSpec(dataset="small", model="sim-careful", base_url="simulator", contexts=1, samples=1)
work = planning.plan(store, spec)
launch.launch(store, work)
end = time.monotonic() + 120
while time.monotonic() < end:
    with store.read() as connection:
        (status,) = (row.status for row in runs.all_rows(connection) if row.id == work)
    if status.is_finished or status == WorkStatus.FAILED:
        break
    time.sleep(0.2)
print(status, launch.log_tail(store, work))
"""
BESIDE = ("app.py", "pages", "seeds", "data/demo", ".streamlit/config.toml")


class Installed(NamedTuple):
    """Programs of the environment that the wheel is installed in, and somebody's folder."""

    programs: Path
    folder: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """What a program prints on standard output."""
        line = [str(self.programs / command[0]), *command[1:]]
        done = subprocess.run(
            line, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    home = tmp_path_factory.mktemp("installed")
    venv.create(home / "venv", with_pip=False, symlinks=True)
    programs = home / "venv" / "bin"
    place = {"base": str(home / "venv"), "platbase": str(home / "venv")}
    packages = Path(sysconfig.get_path("purelib", vars=place))
    # A .pth file takes over the packages of that folder, but not its own .pth files: not the editable checkout.
    ours = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("\n".join(ours) + "\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(programs / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(built[1])], check=True)
    there = {path.name.split("-")[0] for path in packages.iterdir()} - {"__pycache__"}
    assert there == {"cimemories", "cimemories_studio", "cimemories_verifiers.py", "dependencies.pth"}
    folder = home / "a folder of mine"
    # What a folder may hold that must not get in the way: modules of the same names, and settings of another app.
    for name in ("random.py", "pages.py", "seeds.py", "app.py"):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("raise ImportError('this is not the module that was meant')\n")
    (folder / ".streamlit").mkdir()
    (folder / ".streamlit" / "config.toml").write_text('[server]\naddress = "0.0.0.0"\nallowedHosts = ["*"]\n')
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CIMEMORIES_", "PYTHON"))}
    return Installed(programs, folder, {**kept, "HOME": str(home)})


def test_the_wheel_holds_the_app_and_nothing_beside_the_package(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = wheel.namelist()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *BESIDE, "cimemories"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    files = [name.removeprefix("cimemories/extras/training/toplevel/") for name in files]
    expected = {name if name.startswith("cimemories") else f"cimemories/_app/{name}" for name in files}
    info = {name for name in names if ".dist-info/" in name}
    assert len(expected) > 200
    assert set(names) - info == expected
    assert len({name.split("/")[0] for name in info}) == 1


def test_what_is_built_passes_the_checks_of_its_tools(built: tuple[Path, Path]) -> None:
    for command in (["twine", "check", "--strict", *map(str, built)], ["check_wheel_contents", str(built[1])]):
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(built[1]) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        fields = Parser().parsestr(wheel.read(metadata).decode())
    assert fields["Name"] == "cimemories-studio"
    assert fields["Version"] == built[1].name.split("-")[1]


def test_pytest_finds_the_fixture_of_the_wheel(installed: Installed) -> None:
    code = "from importlib.metadata import entry_points as of; print(of(group='pytest11')['cimemories'].load())"
    assert "site-packages/cimemories/pytest_plugin.py" in installed.run("python", "-Pc", code)


@pytest.mark.long
def test_a_study_without_a_checkout(installed: Installed) -> None:
    where = installed.run("python", "-Pc", "from cimemories import installation; print(installation.app_root())")
    assert where.strip().endswith("site-packages/cimemories/_app")
    assert str(ROOT) not in where
    assert "Build, label, run and explore CIMemories" in installed.run("cimemories", "--help")
    installed.run("cimemories", "generate", "-d", "small", "--profiles", "1")
    simulated = ("--base-url", "simulator", "--contexts", "2")
    installed.run("cimemories", "label", "-d", "small", "-m", "sim-labeler", *simulated, "--draws", "1")
    run = installed.run(
        "cimemories", "run", "-d", "small", "-m", "sim-average", *simulated, "--judge", "matcher"
    ).split()[0]
    code = f"import cimemories; print(cimemories.open().runs['{run}'].metrics().violation[5])"
    assert 0 <= float(installed.run("python", "-Pc", code)) <= 1
    installed.run("cimemories", "report", run, "--to", "report.html")
    assert "sim-average" in (installed.folder / "report.html").read_text(encoding="utf-8")
    assert (installed.folder / "data" / "workspace" / "cimemories.sqlite").exists()
    assert installed.run("python", "-Pc", WORKER).startswith("finished ")


@pytest.fixture
def app(installed: Installed) -> Iterator[str]:
    """`cimemories-studio`, which is `cimemories app`, as it starts there."""
    port = serving.free_port()
    log = installed.folder.parent / "app.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(installed.programs / "cimemories-studio"), "--no-demo", "--port", str(port)],
            cwd=installed.folder,
            env=installed.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        serving.wait(f"http://localhost:{port}/_stcore/health", process, log)
        yield f"localhost:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def page(address: str, name: str) -> str:
    """The markup that the server sends of a page, of one run of it."""
    stream = connect(
        f"ws://{address}/_stcore/stream", origin=Origin(f"http://{address}"), subprotocols=[Subprotocol("streamlit")]
    )
    markup = []
    with stream as connection:
        connection.send(BackMsg(rerun_script={"query_string": "", "page_name": name}).SerializeToString())
        while True:
            message = ForwardMsg()
            message.ParseFromString(bytes(connection.recv(timeout=60)))  # type: ignore[arg-type]
            if message.WhichOneof("type") == "script_finished":
                return "\n".join(markup)
            assert message.delta.new_element.WhichOneof("type") != "exception", message
            markup.append(message.delta.new_element.html.body)


def test_the_app_without_a_checkout(app: str) -> None:
    connection = http.client.HTTPConnection(app, timeout=60)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == 200
    assert b"<title>Streamlit</title>" in answer.read()
    for name, title in {"": "CIMemories", "heatmaps": "Heatmaps"}.items():
        assert title in page(app, name), name
    # The settings are the app's own, not those of the folder it was started in.
    connection = http.client.HTTPConnection(app, timeout=60)
    connection.request("GET", "/", headers={"Host": "rebound.example"})
    assert connection.getresponse().status == 403
