"""The locales that profiles can be drawn in: those for which Faker has names and addresses of their own.

Faker knows more locales than these; for the others it silently gives American names or addresses instead, which would
be a profile that says one thing and is another. Two of the list share the names of en_US: en_AU and en_CA.
"""

from __future__ import annotations

from faker import Faker
from faker.config import AVAILABLE_LOCALES

from cimemories.seeds import SeedError

LOCALES = (
    *("ar_DZ", "az_AZ", "bn_BD", "cs_CZ", "da_DK", "de_AT", "de_CH", "de_DE", "el_GR", "en_AU", "en_CA", "en_GB"),
    *("en_IE", "en_IN", "en_NZ", "en_US", "es_AR", "es_CO", "es_ES", "es_MX", "fa_IR", "fi_FI", "fr_CA", "fr_CH"),
    *("fr_DZ", "fr_FR", "he_IL", "hi_IN", "hr_HR", "hu_HU", "hy_AM", "id_ID", "it_IT", "ja_JP", "ka_GE", "ko_KR"),
    *("mk_MK", "mr_IN", "ne_NP", "nl_BE", "nl_NL", "no_NO", "pl_PL", "pt_BR", "pt_PT", "ro_RO", "ru_RU", "sk_SK"),
    *("sl_SI", "sv_SE", "ta_IN", "th_TH", "uk_UA", "vi_VN", "zh_CN", "zh_TW", "zu_ZA"),
)
FAMILY_NAME_FIRST = frozenset({"hu_HU", "ja_JP", "ko_KR", "vi_VN", "zh_CN", "zh_TW"})
NAMES_IN_ONE = frozenset({"ko_KR", "zh_CN", "zh_TW"})  # family and first name are written without a space between
_AS_WRITTEN = {locale.lower(): locale for locale in LOCALES}


def known_locale(locale: str) -> str:
    """The locale as it is written in LOCALES: 'de-de' is de_DE. Raises SeedError for any other, and says why."""
    written = locale.replace("-", "_")
    if written.lower() in _AS_WRITTEN:
        return _AS_WRITTEN[written.lower()]
    if written in AVAILABLE_LOCALES:
        problem = f"Faker has no names and addresses of their own for locale '{locale}'"
    else:
        problem = f"Faker has no locale '{locale}'"
    raise SeedError(f"{problem}. Choose one of {', '.join(LOCALES)}")


def faker_of(locale: str) -> Faker:
    """A generator of its own for a locale of LOCALES; nothing else draws from it. Raises SeedError where the installed
    Faker lacks it.

    Without weighting rare names come as often as common ones, which is faster and leaves more names to give.
    """
    try:
        return Faker(known_locale(locale), use_weighting=False)
    except AttributeError:
        raise SeedError(f"the installed Faker has no locale '{locale}' any more; install an earlier one") from None
