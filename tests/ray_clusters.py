"""Ray clusters of several nodes on this one machine, small enough to stand beside whatever else it does."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator

import psutil

# Before Ray is imported: it tells its makers of its use otherwise, and writes of its inner life to standard error.
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_BACKEND_LOG_LEVEL="fatal")
# Ray's workers would stand behind everything else of the machine (15 by default): what is measured and waited for would
# be how much the machine has to do besides.
os.environ.update(RAY_worker_niceness="0")
# A thread of a run that was given up would start a cluster of its own when the one of its test is gone.
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"

STORE_BYTES = 100_000_000
WORKER = "BlockWorker"  # Ray names its processes by what they run


@contextlib.contextmanager
def cluster_of(*processors: int) -> Iterator[object]:
    """A cluster with a node for each number of processors, which this process is connected to; the first is the
    head."""
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    cluster = Cluster(shutdown_at_exit=True)
    try:
        for count in processors:
            cluster.add_node(num_cpus=count, object_store_memory=STORE_BYTES, include_dashboard=False)
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def worker_processes() -> list[psutil.Process]:
    """The processes of this cluster's workers."""
    workers = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(WORKER in part for part in process.cmdline()):
                workers.append(process)
    return workers


@contextlib.contextmanager
def meanwhile(task: Callable[[threading.Event], None]) -> Iterator[None]:
    """`task` runs in a thread beside the block; its event is set at the block's end. What it raises is raised."""
    over, errors = threading.Event(), list[BaseException]()

    def guarded() -> None:
        try:
            task(over)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]
