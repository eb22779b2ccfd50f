"""Runs against a scripted server, for tests of the executor and of what stands on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from hostile import IncomingRequest, Reply, completion, texts_of

from cimemories.evaluation import planning

T = TypeVar("T")
SAMPLES = 3
MODELS = ("m", "m2", "judge")


def is_judging(request: IncomingRequest) -> bool:
    return request.body["model"] == "judge"


def answering(request: IncomingRequest) -> Reply:
    """A model whose text says what it was asked, and a judge that finds nothing."""
    if is_judging(request):
        return completion('{"revealed": []}')
    return texts_of(request)


def spec(url: str, **changes: object) -> planning.RunSpec:
    judge = planning.JudgeSpec(kind="llm", model="judge", base_url=url)
    values = {
        "dataset": "world",
        "model": "m",
        "base_url": url,
        "samples": SAMPLES,
        "judges": (judge,),
        "seed": 0,
        "timeout": 5.0,
    }
    return planning.RunSpec(**{**values, **changes})


def eventually(question: Callable[[], T], seconds: float = 60.0) -> T:
    """The first answer that is true; the last one where none is."""
    end = time.monotonic() + seconds
    while not (answer := question()) and time.monotonic() < end:
        time.sleep(0.02)
    return answer
