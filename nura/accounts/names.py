"""Names that cannot be taken for somebody else's.

A name is refused where it mixes scripts that no language writes together, where every letter of it
could be a Latin one ("аӏісе" in Cyrillic), or where it holds what cannot be seen. The data are
Unicode's (UTS 39), by confusable_homoglyphs.
"""

import unicodedata

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

WRITTEN_TOGETHER = (
    frozenset({"LATIN", "HANGUL", "HAN"}),
    frozenset({"LATIN", "HAN", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "HAN", "BOPOMOFO"}),
)
"""Scripts of one language: UTS 39, "highly restrictive"."""
EAST_ASIAN = frozenset({"HANGUL", "HAN", "HIRAGANA", "KATAKANA", "BOPOMOFO"})
SHARED = frozenset({"COMMON", "INHERITED"})
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def check_name(name: str) -> None:
    """Raise `ValidationError`, in words, where a name could pass for another."""
    from confusable_homoglyphs import categories  # a megabyte of data that few requests need

    if any(unicodedata.category(character) in UNSEEN for character in name):
        raise ValidationError(_("The name contains a character that cannot be seen."), "unseen")
    scripts = {categories.alias(character) for character in name} - SHARED
    has_loose_marks = any(
        unicodedata.category(one) in {"Mn", "Me"} and categories.alias(one) == "INHERITED"
        for one in unicodedata.normalize("NFC", name)
    )
    has_lone_letters = "LATIN" in scripts and any(map(_is_lone_jamo, name))
    is_mixed = len(scripts) > 1 and not any(scripts <= known for known in WRITTEN_TOGETHER)
    if is_mixed or has_loose_marks or has_lone_letters or _looks_latin(name, scripts):
        raise ValidationError(
            _(
                "This name can be mistaken for another one. Use letters of one alphabet, such as "
                "only Korean or only English."
            ),
            "confusable",
        )


def _looks_latin(name: str, scripts: set[str]) -> bool:
    """Whether letters that are not plain Latin ones look just like them."""
    letters = [one for one in name if one.isalpha() and not one.isascii()]
    if scripts <= {"LATIN"}:
        return any(map(_has_ascii_twin, letters))
    if scripts & EAST_ASIAN:
        return any(_has_ascii_twin(one) for one in letters if one.isalpha() and _is_latin(one))
    return bool(letters) and all(map(_has_ascii_twin, letters))


def _has_ascii_twin(letter: str) -> bool:
    from confusable_homoglyphs import confusables

    found = confusables.is_confusable(letter, greedy=True)
    return bool(found) and any(twin["c"].isascii() for twin in found[0]["homoglyphs"])


def _is_latin(letter: str) -> bool:
    from confusable_homoglyphs import categories

    return bool(categories.alias(letter) == "LATIN")


def _is_lone_jamo(letter: str) -> bool:
    """A part of a syllable that stands alone, as ㅣ, which beside Latin looks like l."""
    return "\u1100" <= letter <= "\u11ff" or "\u3130" <= letter <= "\u318f"
