"""Reading one YAML file against a schema: all of it or nothing, and an error that says where and what.

Files of the project and files that a user wrote come the same way, so a file is taken as hostile: YAML's safe loader, a
limit on its size, no key given twice, and an error that stays short however much is wrong.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

SEEDS = Path(os.environ.get("CIMEMORIES_SEEDS") or Path(__file__).resolve().parents[2] / "seeds")
LARGEST_FILE = 1_000_000  # bytes; the largest file that ships has about 20,000
DEEPEST = 30  # lists and mappings inside one another; the C loader dies of very many
PROBLEMS_NAMED = 10
_UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class SeedError(ValueError):
    """A seeds file that is missing, unreadable or says something impossible; the message says where and what."""


class Seed(BaseModel):
    """What every schema of a seeds file builds on: nothing can be changed, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _one_line(text: str) -> str:
    if _UNPRINTABLE.search(text):
        raise ValueError("must be one line, without control characters")
    return text


def _lines(text: str) -> str:
    if _UNPRINTABLE.search(text.replace("\n", " ")):
        raise ValueError("must be without control characters")
    return text


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
# What stands in one line of a prompt: a line break in a recipient would pass for a part of the prompt's frame.
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300), AfterValidator(_one_line)]
Paragraph = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000), AfterValidator(_lines)
]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
S = TypeVar("S", bound=Seed)

# The C loader reads the offline templates about ten times as fast; a PyYAML built without it still works.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]
    """YAML lets a later value replace an earlier one of the same key in silence; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"'{key.value}' is given twice", key.start_mark)
                seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def load(path: Path) -> object:
    """What a YAML file says. Raises SeedError where it cannot be read, is too large or is no valid YAML."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise SeedError(f"{path}: has {size:,} bytes, more than the {LARGEST_FILE:,} that such a file may have")
        text = path.read_text(encoding="utf-8")
        _refuse_depth(path, text)
        return yaml.load(text, Loader=_Loader)
    except FileNotFoundError:
        raise SeedError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SeedError(f"{path}: cannot be read ({error})") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date or number
        if isinstance(error, SeedError):
            raise
        raise SeedError(f"{path}: not valid YAML ({_in_one_line(error)})") from error


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).replace('in "<unicode string>", ', "in ").split())[:300]


def _refuse_depth(path: Path, text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise SeedError(f"{path}: lists and mappings stand more than {DEEPEST} deep in one another")


def read(path: Path, schema: type[S]) -> S:
    """A YAML file as `schema`. Raises SeedError that names the file, each field and what is wrong with it."""
    return checked(path, load(path), schema)


def checked(path: Path, content: object, schema: type[S]) -> S:
    """What `load` returned for that path, as `schema`. Raises SeedError like `read`."""
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        problems = [f"{_place(p['loc'])}: {p['msg']}" for p in error.errors(include_input=False, include_url=False)]
        more = len(problems) - PROBLEMS_NAMED
        named = problems[:PROBLEMS_NAMED] + ([f"and {more} more"] if more > 0 else [])
        raise SeedError(f"{path}: {'; '.join(named)}") from error


def _place(location: Iterable[int | str]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return _UNPRINTABLE.sub(" ", text.lstrip("."))[:200] or "the file as a whole"


def refuse_repeats(path: Path, what: str, items: Iterable[object]) -> None:
    """Raise SeedError where an item stands more than once."""
    repeated = [str(item) for item, count in Counter(items).items() if count > 1]
    if repeated:
        raise SeedError(f"{path}: {what} given more than once: {', '.join(repeated[:PROBLEMS_NAMED])}")
