"""Reading one YAML file against a schema: all of it or nothing, and an error that says where and what.

Files of the project and files that a user wrote are read alike, so every file is treated as hostile: YAML's safe
loader, limits on its size, its depth and on all values with aliases written out, no key given twice, and an error that
stays short however much is wrong. Two habits of YAML 1.1 are left out: merge keys (<<), which are copied once for every
mention, and numbers to the base 60, which make 4:30 the number 270.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from cimemories.files import NotAFileError, open_regular, uploaded
from cimemories.installation import app_root
from cimemories.text import complaint

SEEDS = Path(os.environ.get("CIMEMORIES_SEEDS") or app_root() / "seeds")
LARGEST_FILE = 1_000_000  # bytes; the largest file that ships has about 20,000
DEEPEST = 30  # lists and mappings inside one another; the C loader dies of very many
MOST_VALUES = 50_000  # lists, mappings and scalars, what an alias stands for counted each time
LONGEST_NUMBER = 100  # characters
PROBLEMS_NAMED = 10
_IN_QUOTES = " (in quotes: yes, no, on and off are true and false in YAML)"
_UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

T = TypeVar("T")


class SeedError(ValueError):
    """A seeds file that is missing, unreadable or impossible; the message says where and what."""


class Seed(BaseModel):
    """Base of the schemas of seeds files: frozen, and an unknown field is an error."""

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
# One line of a prompt: a line break in a recipient would pass for a part of the prompt's frame.
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300), AfterValidator(_one_line)]
Paragraph = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000), AfterValidator(_lines)
]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
S = TypeVar("S", bound=Seed)

# The C loader reads a file of offline templates in 1 ms, Python's in 10 ms; a PyYAML built without it still works.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_INT, _FLOAT, _MERGE = (f"tag:yaml.org,2002:{name}" for name in ("int", "float", "merge"))
# The patterns of YAML 1.1 without those to the base 60.
_NUMBERS = {
    _INT: (re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"), "-+0123456789"),
    _FLOAT: (
        re.compile(
            r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|\.(?:inf|Inf|INF))$"
            r"|\.(?:nan|NaN|NAN)$"
        ),
        "-+0123456789.",
    ),
}


class _Loader(_SafeLoader):  # type: ignore[misc]
    """YAML lets a later value replace an earlier one of the same key in silence; here that is an error."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {
        # PyYAML looks a plain scalar's patterns up by its first character. A copy: the table belongs to the class it
        # derives from.
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
        for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"'{key.value}' is given twice", key.start_mark)
                seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == _MERGE:
                problem = "merge keys (<<) are not read: write the fields out"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        super().flatten_mapping(node)

    def plain_number(self, node: yaml.ScalarNode) -> int | float:
        """Return a number whose tag may also have been written: `!!int 1:30` is to the base 60 whatever the patterns
        say."""
        text = str(self.construct_scalar(node))
        if ":" in text or len(text) > LONGEST_NUMBER:
            problem = "numbers with colons, and very long ones, are not read: write text in quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        number: int | float = self.construct_yaml_int(node) if node.tag == _INT else self.construct_yaml_float(node)
        return number


for _tag, (_pattern, _first) in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, _pattern, list(_first))
    _Loader.add_constructor(_tag, _Loader.plain_number)


def read_uploaded(content: bytes, name: str, read: Callable[[Path], T]) -> T:
    """Apply `read` to an uploaded file. Raises its SeedError without the temporary folder in the message, which means
    nothing to the user."""
    with uploaded(content, name) as path:
        try:
            return read(path)
        except SeedError as problem:
            raise SeedError(str(problem).replace(f"{path.parent}/", "")) from None


def load(path: Path, *, quoting: bool = True) -> object:
    """Return the content of a YAML file. Raises SeedError where it cannot be read, is not a regular file, is too large
    or is not valid YAML. quoting: whether the error may repeat words of the file; without, it gives line and column
    alone."""
    return _loaded(path, lambda text: yaml.load(text, Loader=_Loader), quoting)


@dataclass(frozen=True)
class Lines:
    """The lines of the fields of a YAML file."""

    root: yaml.Node | None

    def __call__(self, location: Sequence[int | str]) -> int:
        """Return the line, from 1, of a field by the keys and positions that lead to it. What the file does not have (a
        field that is missing, a name that only the schema knows) is passed over: then it is the line of what is
        around."""
        node, line = self.root, 1
        for part in location:
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
            elif isinstance(node, yaml.MappingNode):
                entries = list(node.value)
                if len(entries) == 1 and isinstance(entries[0][1], yaml.MappingNode):
                    entries += entries[0][1].value  # `- name: {fields}`, which a schema reads as one mapping
                for key, value in entries:
                    if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                        node, line = value, key.start_mark.line + 1
                        break
        return line


def load_with_lines(path: Path) -> tuple[object, Lines]:
    """Return the content of a YAML file, and where its fields stand. Raises SeedError as `load` does."""

    def both(text: str) -> tuple[object, Lines]:
        return yaml.load(text, Loader=_Loader), Lines(yaml.compose(text, Loader=_Loader))

    return _loaded(path, both, quoting=True)


def _loaded(path: Path, parse: Callable[[str], T], quoting: bool) -> T:
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            # One byte more than allowed shows that there is more: the size that a file reports may be 0 (/proc) or out
            # of date.
            data = stream.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            size = max(size, len(data))
            raise SeedError(f"{path}: has {size:,} bytes, more than the {LARGEST_FILE:,} that such a file may have")
        text = data.decode("utf-8-sig")  # editors on Windows put a byte order mark in front
        _refuse_size(path, text)
        return parse(text)
    except FileNotFoundError:
        raise SeedError(f"{path}: there is no such file") from None
    except NotAFileError as error:
        raise SeedError(f"{path}: cannot be read (it is {error.strerror}). Name a regular file") from None
    except UnicodeDecodeError as error:
        raise SeedError(f"{path}: cannot be read (not UTF-8 at byte {error.start}). Save the file as UTF-8") from None
    except OSError as error:
        raise SeedError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: an impossible date or number
        if isinstance(error, SeedError):
            raise
        if quoting:
            reason = " ".join(str(error).replace('in "<unicode string>", ', "in ").split())[:300]
            raise SeedError(f"{path}: not valid YAML ({reason})") from error
        mark = getattr(error, "problem_mark", None)
        position = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise SeedError(f"{path}: not valid YAML{position}") from None


def _refuse_size(path: Path, text: str) -> None:
    """Refuse what is too deep or too much, before anything is built. Values are counted as if every alias were written
    out: a few lines of aliases to aliases stand for billions."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []  # of each collection around here: its anchor, and the values before it
    total = 0
    for event in yaml.parse(text, Loader=_SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise SeedError(f"{path}: not valid YAML (an alias without an anchor before it)")
            # An anchor's size is known only once its collection has ended, so an alias to a collection around it is
            # refused here too, which would be without end.
            total += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.NodeEvent):
            total += 1
            if isinstance(event, yaml.CollectionStartEvent):
                open_.append((event.anchor, total - 1))
            elif event.anchor:
                sizes[event.anchor] = 1
        if len(open_) > DEEPEST:
            raise SeedError(f"{path}: lists and mappings are nested more than {DEEPEST} deep")
        if total > MOST_VALUES:
            raise SeedError(f"{path}: more than {MOST_VALUES:,} values, counting those of aliases")


def read(path: Path, schema: type[S]) -> S:
    """Return a YAML file as `schema`. Raises SeedError that names the file, each field and what is wrong with it."""
    return checked(path, load(path), schema)


def checked(path: Path, content: object, schema: type[S], lines: Lines | None = None) -> S:
    """Return the content that `load` returned for that path, as `schema`. Raises SeedError like `read`. lines: where
    its fields stand, for the error to name the line of each."""
    try:
        return schema.model_validate(content)
    except ValidationError as error:

        def where(location: tuple[int | str, ...]) -> str:
            return f"line {lines(location)}, " if lines else ""

        problems = [
            f"{where(p['loc'])}{_field(p['loc'])}: {complaint(p)}"
            f"{_IN_QUOTES if (p['type'], type(p['input'])) == ('string_type', bool) else ''}"
            for p in error.errors(include_url=False)
            # Items that are wrong are not counted, so that a list of them would be called too short as well.
            if not (p["type"] == "too_short" and len(p["input"]) >= p["ctx"]["min_length"])
        ]
        more = len(problems) - PROBLEMS_NAMED
        named = problems[:PROBLEMS_NAMED] + ([f"and {more} more"] if more > 0 else [])
        # Chained to nothing: pydantic's error repeats the input, which may hold a password.
        raise SeedError(f"{path}: {'; '.join(named)}") from None


def _field(location: Iterable[int | str]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return _UNPRINTABLE.sub(" ", text.lstrip("."))[:200] or "the file as a whole"


def refuse_repeats(path: Path, what: str, items: Iterable[object]) -> None:
    """Raise SeedError where an item is given more than once."""
    repeated = [str(item) for item, count in Counter(items).items() if count > 1]
    if repeated:
        raise SeedError(f"{path}: {what} given more than once: {', '.join(repeated[:PROBLEMS_NAMED])}")
