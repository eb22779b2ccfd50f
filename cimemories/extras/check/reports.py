"""The reports of a check: lines for a terminal, Markdown for a pull request, JUnit XML for a CI server.

Messages, statements and names come from a model or a file: Markdown escapes all of them, and XML replaces characters
that it cannot hold. Each form says what is simulated."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from urllib.parse import urlencode, urlsplit

from cimemories.extras.check.checking import Check, CheckResult, Leak, Outcome
from cimemories.store.engine import StoreError
from cimemories.text import count, markdown_escaped, sentence, shortened, simulated_text, visible
from cimemories.version import __version__

SUITE = "cimemories check"
ELSEWHERE = "quoted by the judge, not found in the message"
UNQUOTED = "no judge quotes the message"
LONGEST_TITLE = 300  # characters
LONGEST_TEXT = 2_000
_MARKS = {Outcome.PASSED: "✅ passed", Outcome.FAILED: "❌ failed", Outcome.UNDECIDED: "❔ undecided"}
# Characters that XML 1.0 cannot hold, not even escaped.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def checked_app(address: str) -> str:
    """Return the base address of an app, without a trailing slash. Raises StoreError for anything but a plain http
    address, since it becomes a link."""
    try:
        parts = urlsplit(address)
        plain = parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.query
    except ValueError:
        plain = False
    if not plain or re.search(r"[\s<>()\"'\\`\x00-\x1f]", address):
        raise StoreError(
            f"'{shortened(address, 100)}' is no address of an app. Give where it is opened, such as "
            "http://localhost:8501, without a name and a password."
        )
    return address.rstrip("/")


def leak_link(app: str, run: str, leak: Leak) -> str:
    """Return the address of the page Leaks at this flow, in an app on the workspace that the check ran in."""
    query = {"run": run, "profile": leak.profile, "context": leak.context, "attribute": leak.attribute}
    return f"{app}/leaks?{urlencode(query, errors='replace')}"


# ---- a terminal


def as_lines(result: CheckResult) -> list[str]:
    """Return one line a check, and below it what leaked."""
    lines = []
    for check in result.checks:
        lines.append(f"{check.outcome:<9}  {shortened(check.name, LONGEST_TEXT)}")
        lines.append(f"{'':<11}{shortened(check.text, LONGEST_TEXT)}")
        for leak in check.leaks:
            lines.append(f"{'':<11}{shortened(leak.title, LONGEST_TITLE)}")
            lines.append(f"{'':<13}{_plain_quote(leak)}")
        if check.more_leaks:
            lines.append(f"{'':<11}and {count(check.more_leaks, 'more flow')}")
    return [*lines, "", result.sentence]


def _plain_quote(leak: Leak) -> str:
    if not leak.excerpt:
        return UNQUOTED
    where = f"message {leak.sample}" if leak.in_message else ELSEWHERE
    return f'"{shortened(leak.quote, LONGEST_TEXT)}" ({where})'


# ---- Markdown


def as_markdown(result: CheckResult, app: str | None = None) -> str:
    """Return a summary that quotes the leaked sentences. app: base address of an app on the same workspace, for
    links."""
    md = markdown_escaped
    parts = [f"## Privacy check {_MARKS[result.outcome]}", ""]
    if result.simulated_note:
        what = sentence(simulated_text(result.simulated))
        parts += [f"> **{md(what)}** It says nothing about any real model.", ""]
    parts += [
        f"{md(result.model)} on the dataset {md(result.dataset)}: {result.judged:,} of "
        f"{count(result.expected, 'planned message')} judged by {md(result.judge)}.",
        "",
        "| | Check | Found |",
        "|---|---|---|",
        *(f"| {_MARKS[check.outcome]} | {md(check.name)} | {md(check.text)} |" for check in result.checks),
        "",
    ]
    for check in result.checks:
        if check.leaks:
            parts += _leaks(check, result.run, app)
    if result.notes:
        parts += [*(f"- {md(note)}" for note in result.notes), ""]
    parts.append(
        f"Run {md(result.run)} ({md(result.run_name)}), budgets of {md(result.file)}, CIMemories Studio "
        f"{md(__version__)}."
    )
    return "\n".join(parts) + "\n"


def _leaks(check: Check, run: str, app: str | None) -> list[str]:
    md = markdown_escaped
    parts = [f"### {md(check.name)}", ""]
    for leak in check.leaks:
        link = f" ([open](<{leak_link(app, run, leak)}>))" if app else ""
        parts.append(f"- {md(shortened(leak.title, LONGEST_TITLE))}{link}  ")
        parts.append(f"  Memory: {md(shortened(leak.statement, LONGEST_TITLE))}")
        parts += ["", f"  > {_quote(leak)}", ""]
    if check.more_leaks:
        parts += [f"and {count(check.more_leaks, 'more flow')}", ""]
    return parts


def _quote(leak: Leak) -> str:
    """Return the excerpt in one line, with what leaks in bold."""
    if not leak.excerpt:
        return f"*{UNQUOTED}*"
    text = ""
    for piece in leak.excerpt:
        inside = markdown_escaped(piece.text)
        # Bold text must not begin or end with a space.
        before, after = " " * piece.text[:1].isspace(), " " * piece.text[-1:].isspace()
        text += f"{before}<b>{inside}</b>{after}" if piece.leaked and inside else f"{before}{inside}{after}"
    where = f"message {leak.sample}" if leak.in_message else ELSEWHERE
    return f"{text.strip()} ({where})"


# ---- JUnit


def as_junit(result: CheckResult) -> bytes:
    """Return JUnit XML: one suite, one case a check. A failed check is a failure; an undecided one an error, since
    servers count skipped cases as success."""
    number = {outcome: sum(check.outcome is outcome for check in result.checks) for outcome in Outcome}
    counts = {
        "tests": str(len(result.checks)),
        "failures": str(number[Outcome.FAILED]),
        "errors": str(number[Outcome.UNDECIDED]),
        "skipped": "0",
    }
    name = f"{SUITE} (simulated)" if result.simulated else SUITE
    suites = ET.Element("testsuites", {"name": name, **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": name, **counts})
    properties = ET.SubElement(suite, "properties")
    for key in ("run", "run_name", "model", "dataset", "judge", "labels", "judged", "expected"):
        ET.SubElement(properties, "property", {"name": key, "value": _xml(getattr(result, key))})
    ET.SubElement(properties, "property", {"name": "simulated", "value": _xml(" ".join(result.simulated) or "no")})
    for check in result.checks:
        place = {"classname": _xml(result.file), "file": _xml(result.file), "line": str(check.line)}
        case = ET.SubElement(suite, "testcase", {"name": _xml(check.name), **place})
        kind = {Outcome.FAILED: "failure", Outcome.UNDECIDED: "error"}.get(check.outcome)
        lines = [check.text]
        for leak in check.leaks:
            lines += [shortened(leak.title, LONGEST_TITLE), f"  {_plain_quote(leak)}"]
        if check.more_leaks:
            lines.append(f"and {count(check.more_leaks, 'more flow')}")
        if result.simulated_note:
            lines.append(result.simulated_note)
        text = _xml("\n".join(lines))
        if kind is not None:
            ET.SubElement(case, kind, {"type": str(check.outcome), "message": _xml(check.text)}).text = text
        else:
            ET.SubElement(case, "system-out").text = text
    if result.notes:
        ET.SubElement(suite, "system-out").text = _xml("\n".join(result.notes))
    ET.indent(suites)
    document: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _xml(value: object) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", visible(str(value)))
