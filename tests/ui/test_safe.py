"""Nothing that a model or a file says reaches the browser as markup, and nothing of it is lost."""

from __future__ import annotations

import html
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimemories.model import Label
from cimemories.text import visible
from cimemories.ui.safe import (
    CELL_LIMIT,
    FOLD,
    KINDS,
    LABEL_LIMIT,
    LONGEST,
    TAGS,
    Html,
    Marked,
    clip,
    escape,
    facts,
    folded,
    glyphed,
    join,
    message_html,
    option,
    options,
    plain_label,
    tag,
)

HOSTILE = "![x](http://127.0.0.1:1/a.png) <img src=x onerror=alert(1)>"
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
spans = st.builds(Marked, st.integers(-5, 70), st.integers(-5, 70), st.sampled_from(KINDS), texts)


class Reader(HTMLParser):
    """What a browser would see: the text, and every tag with its attributes."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self.text = ""
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.other: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, attributes))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_charref(self, name: str) -> None:
        self.text += chr(int(name[1:], 16) if name.startswith("x") else int(name))

    def handle_entityref(self, name: str) -> None:
        self.text += html.unescape(f"&{name};")

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def handle_decl(self, decl: str) -> None:
        self.other.append(decl)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)


def assert_only_ours(source: str) -> Reader:
    seen = Reader(source)
    assert not seen.other
    for name, attributes in seen.tags:
        assert name in TAGS
        assert {key for key, _ in attributes} <= {"class", "title", "dir", "translate"}
    return seen


@given(texts, st.lists(spans, max_size=6))
def test_a_message_says_exactly_its_text_whatever_is_marked(text: str, marks: list[Marked]) -> None:
    seen = assert_only_ours(message_html(text, marks).source)
    assert seen.text == visible(text)
    assert {name for name, _ in seen.tags} <= {"div", "mark"}


@given(texts, texts)
def test_text_and_titles_are_escaped(text: str, title: str) -> None:
    seen = assert_only_ours(tag("p", text, title=title).source)
    assert without_isolates(seen.text) == visible(text)
    assert not title or without_isolates(dict(seen.tags[0][1])["title"] or "") == visible(title)


def without_isolates(text: str) -> str:
    return text.replace("\u2068", "").replace("\u2069", "")


def test_words_from_right_to_left_displace_nothing_beside_them() -> None:
    dana = "\u05d3\u05e0\u05d4"
    assert escape(f"{dana} {dana}: 29.4 % ({dana})") == f"\u2068{dana} {dana}\u2069: 29.4 % (\u2068{dana}\u2069)"
    assert escape(f"key: {dana} 17,400 {dana}, {dana}") == f"key: \u2068{dana} 17,400 {dana}, {dana}\u2069"
    assert escape(f"{dana} 12, {dana} 7") == f"\u2068{dana}\u2069 12, \u2068{dana}\u2069 7", "a list of names"
    assert escape(option(f"to {dana}")) == option(f"to {dana}") == f"to \u2068{dana}\u2069", "once, however often"
    assert escape(f"\u2068evil\u2069 \u2067{dana}\u2069") == f"\u2426evil\u2426 \u2426\u2068{dana}\u2069\u2426"
    message = message_html(f"{dana}, 3", [Marked(0, 2, "leaked")]).source
    assert 'dir="auto" translate="no"' in message and "\u2068" not in message


def test_markup_of_a_message_is_shown_as_text() -> None:
    source = message_html(HOSTILE, [Marked(0, 5, "leaked", HOSTILE)]).source
    assert "<img" not in source
    assert "&lt;img src=x onerror=alert(1)&gt;" in source


def test_overlapping_marks_take_the_gravest_colour_and_name_both() -> None:
    source = message_html("abcdef", [Marked(0, 4, "conveyed", "job"), Marked(2, 6, "leaked", "rent")]).source
    seen = Reader(source)
    marks = [(dict(attributes)["class"], dict(attributes)["title"]) for name, attributes in seen.tags if name == "mark"]
    # A glyph stands where a colour begins, which for the second mark of a pair is where the first one ends.
    assert marks == [
        ("ci-conveyed ci-opens", "job"),
        ("ci-leaked ci-opens", "job; rent"),
        ("ci-leaked", "rent"),
    ]


def test_what_differs_is_underlined_inside_marks_too() -> None:
    source = message_html("abcdef", [Marked(1, 4, "leaked", "rent")], [(0, 2), (5, 99)]).source
    assert Reader(source).text == "abcdef"
    assert source.count('<span class="ci-differs">') == 3 and '<span class="ci-differs">b</span></mark>' in source


def test_what_does_not_count_is_hatched_and_what_people_say_stands_where_the_mark_ends() -> None:
    spans = [
        Marked(0, 4, "leaked", "rent", weak=True),
        Marked(2, 6, "leaked", "job", confirmed=True),
        Marked(7, 9, "conveyed", "name", weak=True, confirmed=False),
    ]
    seen = Reader(message_html("abcdefghij", spans).source)
    assert [dict(attributes)["class"] for name, attributes in seen.tags if name == "mark"] == [
        "ci-leaked ci-weak ci-opens",
        "ci-leaked ci-opens",  # both reveal it, and one of them counts
        "ci-leaked ci-confirmed",
        "ci-conveyed ci-weak ci-opens ci-denied",
    ]


def test_marks_outside_the_text_are_cut_or_left_out() -> None:
    assert "<mark" not in message_html("abc", [Marked(3, 9, "leaked"), Marked(2, 1, "leaked")]).source
    assert Reader(message_html("abc", [Marked(-2, 9, "leaked")]).source).text == "abc"


def test_lines_survive_as_one_line_of_markup() -> None:
    assert escape("a\n   \nb") == "a&#10;   &#10;b"


def test_a_lone_surrogate_can_be_sent() -> None:
    assert message_html("\ud800!").source.encode()


def test_tags_and_classes_that_are_not_ours_are_refused() -> None:
    for name, cls in (("img", ""), ("script", ""), ("div", 'x" onclick="'), ("div", "stApp")):
        with pytest.raises(ValueError, match="not among the tags"):
            tag(name, cls=cls)


def test_text_of_the_record_has_a_direction_of_its_own_and_stays_untranslated() -> None:
    assert tag("b", "<i>", data=True).source == '<b dir="auto" translate="no">&lt;i&gt;</b>'


def test_only_html_is_kept_as_markup() -> None:
    assert join([tag("b", "x"), "<b>"]) == Html("<b>x</b>&lt;b&gt;")


@given(st.text(max_size=300))
def test_labels_are_one_line_and_short(text: str) -> None:
    assert len(option(text)) <= 90
    assert len(option(text).splitlines()) <= 1
    assert option(text) == option(text).encode().decode()
    assert plain_label(text) == plain_label(text).encode().decode()


@given(st.text("![](x)<>*_`$:~@/.w\\ ab", max_size=40))
def test_labels_have_no_markdown_left(text: str) -> None:
    label = plain_label(text)
    bare = label.replace("\\\\", "")
    for character in "![]<>*_`$~":  # without square brackets, round ones are no markup
        assert bare.count(character) == bare.count("\\" + character)
    assert "://" not in label
    assert plain_label("see http://a.b") == "see http\\:\N{WORD JOINER}//a.b"
    assert plain_label("www.a.b") == "www\N{WORD JOINER}.a.b"
    assert [plain_label(text) for text in ("1. a", "- a", "# a", "+ a")] == ["1\\. a", "\\- a", "\\# a", "\\+ a"]


def test_a_label_that_is_no_markdown_stays_as_it_is_since_a_screen_reader_reads_it() -> None:
    for text in ("Request timeout (s)", "Prices of gpt-4.1", "Raise the cap to (USD)", "95 %; a/b, c + d = 'e'?"):
        assert plain_label(text) == text


def test_every_label_has_a_glyph() -> None:
    assert [glyphed(label) for label in (*Label, None)] == ["N necessary", "I inappropriate", "U ambiguous", ""]


def test_a_long_text_is_folded_and_nothing_of_it_is_lost() -> None:
    text = "<b>" + "x" * 5_000 + "</b>"
    source = folded(text).source
    seen = assert_only_ours(source)
    assert [name for name, _ in seen.tags] == ["details", "summary", "span"]
    assert seen.text == text[:FOLD] + f"… {len(text) - FOLD:,} more characters" + text[FOLD:]
    assert folded("x" * FOLD).source == "x" * FOLD
    assert "<details" in facts([("Statement", text)]).source


def test_no_text_is_sent_whole_that_a_browser_cannot_lay_out() -> None:
    endless = "x" * 1_000_000
    for made in (escape(endless), folded(endless).source, tag("p", endless).source):
        assert len(made) < LONGEST + FOLD + 1_000
        assert "more characters" in made
    assert len(tag("p", "a", title=endless).source) < CELL_LIMIT + 100
    marks = [Marked(10, 20, "leaked"), Marked(500_000, 500_010, "leaked")]
    seen = assert_only_ours(message_html(endless, marks).source)
    assert len(seen.text) < LONGEST + 100 and "900,000 more characters, with 1 marked quote" in seen.text
    assert [name for name, _ in seen.tags].count("mark") == 1
    assert clip("abc", 2) == "ab… (1 more characters)" and clip("abc", 3) == "abc"


@given(st.lists(st.sampled_from(["Ann Lee", "Ann Lee (2)", "Ann Lee (3)", "x" * 200, "x" * 199, ""]), max_size=12))
def test_options_are_told_apart_by_what_they_show(names: list[str]) -> None:
    shown = options(range(len(names)), names.__getitem__)
    assert len(set(shown.values())) == len(names)
    assert all(len(text) <= LABEL_LIMIT for text in shown.values())
    for n, name in enumerate(names):
        if [option(other) for other in names].count(option(name)) == 1 and "(" not in name:
            assert shown[n] == option(name)
