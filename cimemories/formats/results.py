"""The authors' results (formats.md, section 3): one profile a line, with every response that was generated for it.

    {"bio": ..., "information_attributes": ..., "contexts": [{"recipient": "Landlord", "task": "Renew a lease",
      "combination_num_to_share=2_num_not_to_share=1_trial=0": {
        "prompt": "...", "to_share_attributes": ["rent", "income"], "not_to_share_attributes": ["divorce"],
        "trial_idx": 0, "model_solution": {"response_solution": "Dear ...",
          "revealed_attributes": {"rent": 1, "income": 0, "divorce": 0},
          "revealed_attributes_explanation": {"rent": "My rent is $1,450."}}}}]}

Such files are large (some 7 MB a profile), so that one line at a time is in memory and prompts are not kept. One field
is our own, written by our export: "run", of a profile what the run was, of a response what the layout cannot say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from cimemories.formats.errors import FormatError
from cimemories.formats.json_records import loads
from cimemories.formats.labelled import NO_VOTES, LabelReader
from cimemories.formats.official import Remarks, checked_profile, opened
from cimemories.formats.official_records import MOST_PROFILES, shown
from cimemories.formats.results_records import OF_RESPONSE, RUN, Result, ResultReader, RunTold
from cimemories.model import Profile
from cimemories.store.imported import SharedLabels

LONGEST_LINE = 256 << 20  # bytes
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ProfileResults:
    """One line: the profile, and its responses in the order of the file."""

    profile: Profile
    results: tuple[Result, ...]


class ResultsFile:
    """A file of results as a stream. What is said of it as a whole (labels, notes, hash) holds after the last line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = shown(path.name or path)
        self._digest = hashlib.sha256()
        self._remarks = Remarks(known=("labels_", "labelling", OF_RESPONSE, RUN))
        self._labels = LabelReader(self.name)
        self._reader = ResultReader(self.name)

    def profiles(self) -> Iterator[ProfileResults]:
        """Every line, checked. Raises FormatError on the first problem, which names profile, context and field."""
        count = responses = 0
        with opened(self.path) as stream:
            for line in self._lines(stream):
                if count == MOST_PROFILES:
                    raise FormatError(f"{self.name}: more than {MOST_PROFILES:,} profiles; split the file")
                raw = self._record(line, count)
                profile = checked_profile(raw, count, self.name)
                self._remarks.see(raw)
                self._labels.read(count, raw, profile)
                results = self._reader.read(count, raw, profile)
                count, responses = count + 1, responses + len(results)
                yield ProfileResults(profile, results)
        if not count:
            raise FormatError(f"{self.name}: the file is empty")
        if not responses:
            raise FormatError(
                f"{self.name}: no context holds a response (fields from '{OF_RESPONSE}'); to import profiles alone, "
                "put them into one list, in [ ]"
            )

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def told(self) -> RunTold | None:
        """What our own export says of the run; None for a file from elsewhere."""
        return self._reader.told

    def labels(self) -> tuple[SharedLabels, ...]:
        return self._labels.labels({"file": self.name, "sha256": self.sha256, "votes": NO_VOTES})

    def notes(self) -> tuple[str, ...]:
        return (*self._remarks.notes(), *self._labels.notes(), *self._reader.notes())

    def _record(self, line: bytes, count: int) -> dict[str, Any]:
        raw = loads(line, f"{self.name}: profile {count + 1}")
        if isinstance(raw, list):
            raise FormatError(f"{self.name}: profile {count + 1}: this is a list; results have one profile a line")
        found: dict[str, Any] = raw
        return found

    def _lines(self, stream: BinaryIO) -> Iterator[bytes]:
        number = 0
        while line := stream.readline(LONGEST_LINE):
            number += 1
            self._digest.update(line)
            if len(line) == LONGEST_LINE:
                raise FormatError(
                    f"{self.name}: line {number} is longer than {LONGEST_LINE >> 20} MiB; results have a profile a line"
                )
            if number == 1:
                line = line.removeprefix(_BOM)
            if line.strip():
                yield line
