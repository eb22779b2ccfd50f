"""The shape of the code, read from its syntax trees: which way imports point, and what must not be written where.

The rules are those of the design notes: layers point one way, Streamlit stays in the app, a model's text never reaches
a widget that renders markdown, SQL and prompts have one place each.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from cimemories.seeds import SEEDS

ROOT = Path(__file__).resolve().parents[1]
APP = "app.py"
TOP, UI = 20, -1
RANKS = {
    "model": 0,
    "manifest": 0,
    "text": 0,
    "event_loop": 0,
    "files": 0,
    "installation": 0,
    "version": 0,
    "extras": 0,  # cimemories/extras/__init__.py; a folder in it is an `extra`
    "access": 0,
    "seeds": 1,
    "store": 1,
    "answer": 1,
    "settings": 2,
    "simulator": 2,
    "formats": 3,
    "llm": 3,
    "memory": 4,
    "evaluation": 5,
    "curation": 6,
    "flows": 7,
    "labels": 8,
    "agreement": 9,
    "exchange": 9,
    "metrics": 10,
    "review": 11,
    "leaks": 11,
    "compare": 11,
    "charts": 12,
    "answers": 13,
    "desk": 14,
    "report": 14,
    **dict.fromkeys(
        (
            "api",
            "cli",
            "extra",
            "serving",
            "demo",
            "demo_parts",
            "launch",
            "uploads",
            "__main__",
            "pages",
            "app",
        ),
        TOP,
    ),
    "pytest_plugin": TOP,
    "ui": UI,
}
ANALYSIS = ("answers", "flows", "labels", "metrics", "agreement", "review", "compare", "leaks")
MOST_FILES = 16  # of one folder, __init__.py not counted
FORBIDDEN_IN_APP = {"sqlalchemy", "duckdb", "numpy", "openai"}
# What renders its first argument as markdown or HTML and so fetches an image without a click.
TEXTS = "markdown write table metric toast chat_message caption info warning error success title header subheader html"
LABELS = (
    "exception badge latex expander popover status tabs dialog link_button form_submit_button radio checkbox toggle "
    "multiselect pills segmented_control text_input text_area number_input slider file_uploader"
)
RENDERERS = frozenset(f"{TEXTS} {LABELS}".split())
FOLDERS = {path.parent.name for path in (ROOT / "cimemories" / "extras").glob("*/__init__.py")}
SAFE = "cimemories/ui/safe.py"
SQL = re.compile(r"\b(SELECT\s.+\sFROM|INSERT\s+INTO|DELETE\s+FROM|UPDATE\s+\w+\s+SET|CREATE\s+TABLE)\b", re.DOTALL)
INSTRUCTIONS = re.compile(r"\b(You are (a|an|the)|Your task is|(Answer|Respond|Reply) (only )?(with|in))\b")


def sources() -> list[str]:
    """The project's own source files, relative to the repository."""
    files = [ROOT / APP, *(ROOT / "cimemories").rglob("*.py"), *(ROOT / "pages").rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in files)


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), file)


@cache
def nodes(file: str) -> list[ast.AST]:
    """All of a file's tree: each walk through all files takes a second of the processor, and the tests need a dozen."""
    return list(ast.walk(tree(file)))


def part_of(file: str) -> str:
    """The part of the house that a file is: 'store' for cimemories/store/runs.py, 'cli' for cimemories/cli.py.

    A file of an extra whose name begins with page is one of the pages.
    """
    pieces = Path(file).with_suffix("").parts
    if extra_of(file) and pieces[-1].startswith("page"):
        return "pages"
    if extra_of(file):
        return "extra"
    return pieces[1] if pieces[0] == "cimemories" else pieces[0]


def extra_of(file: str) -> str:
    """The extra that a file belongs to; '' for one of the core."""
    pieces = Path(file).parts
    return pieces[2] if pieces[:2] == ("cimemories", "extras") and len(pieces) > 3 else ""


def extra_imported(name: str) -> str:
    """The extra that an imported module belongs to; '' for another one."""
    pieces = [*name.split("."), ""]
    return pieces[2] if pieces[:2] == ["cimemories", "extras"] and pieces[2] in FOLDERS else ""


@cache
def imported(file: str) -> list[tuple[str, int]]:
    """Every module that a file imports, wherever in it, in full, with the line: 'cimemories.store.runs'."""
    imports = []
    for node in nodes(file):
        if isinstance(node, ast.Import):
            imports += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are written in full here"
            imports += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return imports


def project_imports(file: str) -> Iterator[tuple[str, int]]:
    for name, line in imported(file):
        pieces = name.split(".")
        if pieces[0] in ("pages", "app"):
            yield pieces[0], line
        elif pieces[0] == "cimemories" and len(pieces) > 1:
            yield "extra" if extra_imported(name) else pieces[1], line


def allowed(here: str, there: str) -> bool:
    """Whether one part may import another."""
    if there == here:
        return True
    if there == "ui":
        return here in ("pages", "app")
    if here == "ui":
        return there in ("model", "charts", "access", "answer", "text", "installation", "desk")
    if there in ("pages", "app"):
        return here == "app"
    if there == "extra":  # which of them, test_an_extra_is_imported_by_itself_alone says
        return here in ("extra", "pages")
    return RANKS[there] < RANKS[here] or RANKS[here] == RANKS[there] == TOP


def texts(file: str) -> Iterator[tuple[str, int]]:
    """String literals that are no docstrings, those in f-strings among them."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in nodes(file)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value, node.lineno


def test_every_part_of_the_house_has_a_rank() -> None:
    parts = {part_of(file) for file in sources()}
    assert parts - {"__init__"} <= RANKS.keys()
    assert {"model", "store", "llm", "curation", "evaluation", "flows", "metrics", "ui", "pages", "app", "cli"} <= parts


def test_imports_point_one_way() -> None:
    wrong = [
        f"{file}:{line}: {part_of(file)} must not import {there}"
        for file in sources()
        for there, line in project_imports(file)
        if part_of(file) != "__init__" and not allowed(part_of(file), there)
    ]
    assert not wrong, "\n".join(wrong)


def test_an_extra_is_imported_by_itself_alone() -> None:
    """So that its folder can be deleted: the core finds what it adds by cimemories/extras/__init__.py."""
    wrong = []
    for file in sources():
        for name, line in imported(file):
            extra = extra_imported(name)
            if extra and extra != extra_of(file):
                wrong.append(f"{file}:{line}: must not import the extra {extra}")
            register = extra_of(file) and Path(file).parts[3:] == ("__init__.py",)
            if register and name != "cimemories.extras.Extra":
                wrong.append(f"{file}:{line}: is imported by every command, and must not import {name}")
    assert not wrong, "\n".join(wrong)


def test_no_module_is_imported_in_a_circle() -> None:
    """Imports inside functions count too: a circle that is hidden there is one all the same."""
    modules = {
        Path(file).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): file for file in sources()
    }
    graph = {
        name: {
            module
            for item, _ in imported(file)
            if (module := item if item in modules else item.rpartition(".")[0]) in modules and module != name
        }
        for name, file in modules.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def test_a_folder_is_no_cupboard() -> None:
    files = Counter(str(Path(file).parent) for file in sources() if Path(file).name != "__init__.py")
    assert {folder: count for folder, count in files.items() if count > MOST_FILES and "versions" not in folder} == {}


def test_streamlit_stays_in_the_app_and_vllm_and_sql_outside_of_it() -> None:
    in_app = ("ui", "pages", "app")
    wrong = []
    for file in sources():
        for name, line in imported(file):
            package = name.split(".")[0]
            if package == "streamlit" and part_of(file) not in in_app:
                wrong.append(f"{file}:{line}: streamlit is for pages, app.py and ui")
            if package == "vllm":
                wrong.append(f"{file}:{line}: vLLM is asked over HTTP and never imported")
            if package in FORBIDDEN_IN_APP and part_of(file) in ("pages", "app"):
                wrong.append(f"{file}:{line}: {package} has no place on a page; ask the library")
    assert not wrong, "\n".join(wrong)


def test_nothing_switches_streamlits_escaping_off() -> None:
    wrong = [
        f"{file}:{node.lineno}: {keyword.arg}"
        for file in sources()
        for node in nodes(file)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if (keyword.arg or "").startswith("unsafe_allow_")
    ]
    assert not wrong, "\n".join(wrong)


def literal(node: ast.expr) -> bool:
    """Whether a text is wholly written in the source (one literal, or a choice between literals), or escaped."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "safe.plain_label":
        return True
    if isinstance(node, ast.IfExp):
        return literal(node.body) and literal(node.orelse)
    if isinstance(node, ast.List | ast.Tuple):
        return all(literal(item) for item in node.elts)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def rendered(file: str) -> Iterator[tuple[str, ast.expr, int]]:
    """The first argument of each call that renders it: of `st`, and of any container, but not of a module of ours."""
    ours = {
        alias.asname or alias.name
        for node in nodes(file)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cimemories")
        for alias in node.names
    }
    for node in nodes(file):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RENDERERS):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id in ours:
            continue
        first = node.args[:1] or [k.value for k in node.keywords if k.arg in ("body", "label", "data", "value")][:1]
        if first:
            yield node.func.attr, first[0], node.lineno


def test_only_written_text_is_rendered_as_markdown() -> None:
    """A model's or a file's text in st.markdown, st.write, st.error and the like would fetch images without a click."""
    wrong = [
        f"{file}:{line}: {name}({ast.unparse(argument)}) renders text that is not written here: use ui.safe"
        for file in sources()
        if part_of(file) in ("ui", "pages", "app") and file != SAFE
        for name, argument, line in rendered(file)
        if not literal(argument)
    ]
    assert not wrong, "\n".join(wrong)


def test_sql_text_is_in_the_store_and_the_rooms_of_analysis_alone() -> None:
    wrong = []
    for file in (f for f in sources() if part_of(f) not in ("store", *ANALYSIS)):
        wrong += [f"{file}:{line}: {text[:60]!r}" for text, line in texts(file) if SQL.search(text)]
        wrong += [f"{file}:{line}: {name}" for name, line in imported(file) if name == "sqlalchemy.text"]
        wrong += [
            f"{file}:{node.lineno}: {ast.unparse(node)}"
            for node in nodes(file)
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sa.text", "sqlalchemy.text")
        ]
    assert not wrong, "\n".join(wrong)
    in_store = [text for file in sources() if part_of(file) in ANALYSIS for text, _ in texts(file)]
    assert any(SQL.search(text) for text in in_store)


def test_prompts_are_files_and_no_code() -> None:
    lines = {
        line.strip()
        for path in (SEEDS / "prompts").glob("*.yaml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if len(line.strip()) > 40
    }
    assert len(lines) > 10
    wrong = [
        f"{file}:{line}: {text[:80]!r}"
        for file in sources()
        for text, line in texts(file)
        if INSTRUCTIONS.search(text) or any(prompt in text for prompt in lines)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("import streamlit as st\nst.markdown(text)", 1),
        ("import streamlit as st\nst.error(f'{name} failed')", 1),
        ("left.write(body=text)", 1),
        ("st.markdown('written' if x else 'here too')", 0),
        ("st.text(text)", 0),
        ("from cimemories.ui import safe\nsafe.error(text)", 0),
    ],
)
def test_the_lint_for_hostile_text_sees_what_it_should(monkeypatch: pytest.MonkeyPatch, code: str, count: int) -> None:
    monkeypatch.setitem(globals(), "nodes", lambda _: list(ast.walk(ast.parse(code))))
    assert sum(not literal(argument) for _, argument, _ in rendered("made up")) == count


def test_the_arrows_are_what_they_are_said_to_be() -> None:
    assert allowed("flows", "curation")
    assert allowed("cli", "metrics")
    assert allowed("pages", "ui")
    assert allowed("ui", "model")
    for here, there in [
        ("store", "llm"),
        ("evaluation", "curation"),
        ("llm", "formats"),
        ("model", "seeds"),
        ("ui", "store"),
        ("cli", "ui"),
        ("metrics", "ui"),
        ("flows", "metrics"),
        ("metrics", "compare"),
        ("cli", "pages"),
        ("store", "seeds"),
    ]:
        assert not allowed(here, there), (here, there)
