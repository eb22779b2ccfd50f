"""Words for the matcher: which say little, how a plural or a negation is seen, and a statement in another person."""

from __future__ import annotations

import re
from functools import lru_cache

from cimemories.evaluation.grounding import fold

TOKEN = re.compile(r"[^\W_]+(?:'[a-z]+)?")
_IRREGULAR = {"children": "child", "men": "man", "women": "woman", "feet": "foot", "lives": "life", "wives": "wife"}
_FIRST_PERSON = {"is": "am", "has": "have", "does": "do", "was": "was", "goes": "go"}


def _listed(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


STOP = _listed(
    """a about after all also an and any are as at be because been before being but by can could did do does doing
    during each for from get had has have having he her hers him himself his how i if in into is it its just like m
    may me more most my myself of on one or other our out over per she should so some such than that the their them
    then there these they this those through to too under until up us very was we were what when where which while who
    will with would
    you your yours"""
)
NEGATIONS = frozenset({"no", "not", "never", "none", "without", "neither", "nor", "cannot"})
# Words that many attributes share: as a value they state nothing by themselves, beside a number they say nothing of it.
COMMON = _listed(
    """active actively adequate age aged annual annually approved approximately available average away bad bi biweekly
    center completed complete consistent cost current currently daily date day days dear decreased denied developed due
    elevated excellent extra fair female financial first five four friday friends full general generally good half high
    highly home hour hours identified improved increase increased increasing kind last less level limited little long
    low lower male mild mildly minimal minute minutes moderate moderately monday month monthly morning much name need
    negative new next normal normally now number occasional occasionally often ongoing only open operational own paid
    part partially pending people person poor positive present quarterly ratio reduced reduction regular regularly
    retired required reviewed saturday scheduled second secure service session set severe severely significant
    significantly since single slight slightly some spouse stable still strong sunday supportive support this three
    thursday time times today total tuesday two type unchanged used usd value wednesday week weekly weeks well work
    working year yearly years yes married divorced separated evening afternoon late early amount status dollar dollars
    percent percentage thousand million kg lbs lb mg mmhg dl ok okay na"""
)


def voices(statement: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The statement (folded) as written, and as said by the user or of the user; only the subject's verb is changed."""
    name = "|".join(map(re.escape, names)) or "he"
    own = re.sub(rf"\b(?:his|her|their|(?:{name})'s)(?!\w)", "my", statement)
    own = re.sub(rf"^(?:he|she|{name}) (\w+)", lambda found: f"i {_plain(found[1])}", own)
    voices = [statement, own]
    if not re.search(r"\b(?:i|me|we|our)\b", statement) and re.search(r"\bmy\b", statement):
        voices += [re.sub(r"\bmy\b", whose, statement) for whose in ("his", "her", "their")]
    voices += [voice.replace("i am ", "i'm ", 1) for voice in voices if voice.startswith("i am ")]
    return tuple(dict.fromkeys(voices))


def _plain(verb: str) -> str:
    """A verb as it goes with 'I': 'has' gives 'have', 'pays' 'pay'; a past tense stays."""
    if verb in _FIRST_PERSON:
        return _FIRST_PERSON[verb]
    return _singular(verb) if verb.endswith("s") else verb


def words(text: str) -> frozenset[str]:
    """The different words of a text or key, folded, without possessive or plural ending."""
    return frozenset(word_of(token)[0] for token in TOKEN.findall(fold(text.replace("_", " ")).text))


@lru_cache(maxsize=32_768)
def word_of(token: str) -> tuple[str, bool]:
    """The word without "'s" or plural, and whether it negates."""
    negation = token in NEGATIONS or token.endswith("n't")
    return _singular(token.partition("'")[0]), negation


def _singular(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
