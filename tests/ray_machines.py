"""A Ray cluster of machines as separate as those of one computer can be: each has its own network, host name and
process numbers (namespaces of Linux), and a clock that may be wrong.

The clock of an own time namespace would not do: it covers what is counted from the start of the machine, not the time
of day. Nor does libfaketime: with Python 3.11 either every sleep fails or every wait takes as long as the clock is
wrong. So a sitecustomize in the path of a machine's Python processes, Ray's workers among them, sets their clocks
wrong by time-machine. Raylet itself, which is no Python, keeps the true one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from evaluating import ROOT
from executing import eventually
from ray_clusters import STORE_BYTES

PORT = 6379
CLOCK = "CIMEMORIES_TEST_CLOCK"
SITE = f"""
import datetime, os
import time_machine
wrong = datetime.timedelta(seconds=float(os.environ[{CLOCK!r}]))
time_machine.travel(datetime.datetime.now(datetime.UTC) + wrong, tick=True).start()
"""


@dataclass(frozen=True)
class Machine:
    """name: of the host; address: on the network that the machines and the test share; process: of its first one, by
    the numbers of the test's own machine."""

    name: str
    address: str
    environment: Mapping[str, str]
    process: int

    def start(self, *command: object, **options: object) -> subprocess.Popen[str]:
        """A process on this machine."""
        inside = ["nsenter", f"--target={self.process}", "--net", "--uts", "--mount", "--pid", f"--wdns={ROOT}"]
        return subprocess.Popen([*inside, *map(str, command)], env=self.environment, text=True, **options)  # type: ignore[call-overload,no-any-return]

    def run(self, *command: object, timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end."""
        process = self.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            output, error = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # nsenter waits for a child of its own in the other namespace of processes.
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            raise
        return subprocess.CompletedProcess(command, process.returncode, output, error)


def require() -> None:
    """Skip the test where no machines can be made."""
    programs = [name for name in ("ip", "unshare", "nsenter", "mount") if not shutil.which(name)]
    if sys.platform != "linux" or os.geteuid() != 0 or programs:
        pytest.skip(f"separate machines need Linux, root and {' '.join(programs or ['namespaces'])}")


@contextlib.contextmanager
def network(*names: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A network namespace for each name, with a bridge to this machine: its address, and theirs by name."""
    bridge = f"cim{os.getpid()}"
    # From the block that is set apart for the measurement of networks (RFC 2544): no machine uses it.
    own, *addresses = (f"198.18.{os.getpid() % 256}.{host}" for host in range(1, len(names) + 2))
    spaces = [f"{bridge}-{name}" for name in names]

    def ip(text: str) -> None:
        done = subprocess.run(["ip", *text.split()], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"`ip {text}` is not possible here: {done.stderr.strip()}")

    try:
        ip(f"link add {bridge} type bridge")
        ip(f"address add {own}/24 dev {bridge}")
        ip(f"link set {bridge} up")
        for number, (space, address) in enumerate(zip(spaces, addresses, strict=True)):
            ip(f"netns add {space}")
            ip(f"link add {bridge}v{number} type veth peer name eth0 netns {space}")
            ip(f"link set {bridge}v{number} master {bridge} up")
            ip(f"-n {space} address add {address}/24 dev eth0")
            for device in ("lo", "eth0"):
                ip(f"-n {space} link set {device} up")
            ip(f"-n {space} route add default via {own}")
        yield own, dict(zip(names, addresses, strict=True))
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True)


@contextlib.contextmanager
def machines(folder: Path, clocks: Mapping[str, float], processors: int) -> Iterator[tuple[str, list[Machine]]]:
    """A Ray cluster of a machine for each name, the first being its head: this machine's address, and they.

    clocks: by how many seconds each one's clock is ahead; folder: for their files."""
    require()
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(SITE, "utf-8")
    with network(*clocks) as (own, addresses), contextlib.ExitStack() as stack:
        hosts = folder / "hosts"  # without it a machine asks the internet for its own name
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{at} {name}\n" for name, at in addresses.items()), "utf-8")
        made: list[Machine] = []
        for name, address in addresses.items():
            environment = {k: v for k, v in os.environ.items() if not k.startswith("CIMEMORIES_")} | {
                CLOCK: str(clocks[name])
            }
            if clocks[name]:
                environment["PYTHONPATH"] = str(folder / "site")
            where = f"--address={made[0].address}:{PORT}" if made else f"--head --port={PORT} --include-dashboard=false"
            ray = f"{Path(sys.executable).parent}/ray start --block --node-ip-address={address} {where}"
            sizes = f"--num-cpus={processors} --object-store-memory={STORE_BYTES}"
            # Ray gives a node 30 s to start, which on a busy machine can be too few.
            attempts = " || ".join([f"{ray} {sizes}"] * 3)
            start = f"hostname {name}; mount --bind {hosts} /etc/hosts; {attempts}"
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            first = subprocess.Popen(
                # --kill-child: what is in the namespace of processes ends with its first.
                [
                    *("ip", "netns", "exec", f"cim{os.getpid()}-{name}"),
                    *("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", start),
                ],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
            stack.callback(_end, first)
            inside = eventually(lambda first=first: psutil.Process(first.pid).children(), 20)  # type: ignore[misc]
            made.append(Machine(name, address, environment, inside[0].pid))
            _await(folder / f"{name}.log", first)
        yield own, made


def _await(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the node is there: `ray start --block` then says that it blocks."""
    eventually(lambda: process.poll() is not None or "block forever" in log.read_text(), 600)
    assert process.poll() is None and "block forever" in log.read_text(), log.read_text()[-2000:]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
