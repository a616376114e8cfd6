# /// script
# dependencies = ["fonttools==4.68.0", "brotli==1.2.1"]
# ///
"""Cuts Pretendard into the parts that a page loads as it needs them (`unicode-range`).

`make fonts` runs it, in an environment of its own. Writes `static/nura/fonts/*.woff2` and
`front/css/fonts.css`. The parts are a modified font, which must not bear the reserved name:
they are called "Nura Sans".
"""

from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.varLib import instancer

HERE = Path(__file__).parent
SOURCE = HERE / "PretendardVariable.woff2"
FONTS = HERE.parents[1] / "static" / "nura" / "fonts"
STYLES = HERE.parent / "css" / "fonts.css"
FAMILY = "Nura Sans"
WEIGHTS = (400, 700)
"""The page uses no others; half of what a variable font weighs is for the lighter ones."""
LATIN = [
    *range(0x20, 0x7F),
    *range(0xA0, 0x100),
    *range(0x2010, 0x2040),
    *(0x20A9, 0x20AC, 0x2122, 0x2190, 0x2191, 0x2192, 0x2193, 0x2212, 0x2318),
]
JAMO = range(0x3131, 0x318F)
"""Letters that are not a syllable yet: seen while somebody types."""
SYMBOLS = [*range(0x2150, 0x2190), *range(0x2460, 0x2800), *range(0x3000, 0x3040), *range(0x3200, 0x3400)]
"""Brackets, figures in circles, bullets and units of Korean documents."""
HANGUL = range(0xAC00, 0xD7A4)
RARE_PARTS = 8
FEATURES = ["calt", "ccmp", "kern", "liga", "locl", "mark", "mkmk", "tnum"]
FACE = """@font-face {{
  font-family: "{family}";
  font-weight: {weights};
  font-style: normal;
  font-display: swap;
  src: url("../fonts/{name}.woff2") format("woff2");
  unicode-range: {ranges};
}}
"""


def part_characters(known: set[int]) -> dict[str, list[int]]:
    """What each part holds, by its name: no character is in two, none of the font is lost."""
    lines = (HERE / "syllables.txt").read_text(encoding="utf-8").splitlines()
    common = [[ord(one) for one in line] for line in lines if not line.startswith("#")]
    parts = {"latin": LATIN, "symbols": SYMBOLS, "hangul-1": [*JAMO, *common[0]]}
    parts |= {f"hangul-{number}": group for number, group in enumerate(common[1:], 2)}
    taken = {one for group in parts.values() for one in group}
    rare = [one for one in HANGUL if one not in taken]
    size = -(-len(rare) // RARE_PARTS)
    for number in range(RARE_PARTS):
        parts[f"rare-{number + 1}"] = rare[number * size : (number + 1) * size]
    parts["other"] = sorted(known - taken - set(HANGUL))
    return {name: sorted(known & set(group)) for name, group in parts.items()}


def write_ranges(characters: list[int]) -> str:
    """`U+20-7E, U+A0`: sorted characters as a `unicode-range`."""
    spans: list[list[int]] = []
    for one in characters:
        if spans and one == spans[-1][1] + 1:
            spans[-1][1] = one
        else:
            spans.append([one, one])
    return ", ".join(f"U+{a:X}" if a == b else f"U+{a:X}-{b:X}" for a, b in spans)


def write_part(font: Path, name: str, characters: list[int]) -> None:
    """One part of the font as a file."""
    options = subset.Options(flavor="woff2", hinting=False, layout_features=FEATURES)
    options.drop_tables += ["STAT"]
    part = subset.load_font(str(font), options)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters)
    cutter.subset(part)
    for record in part["name"].names:
        if record.nameID in {1, 3, 4, 6, 16}:
            record.string = FAMILY.replace(" ", "") if record.nameID == 6 else FAMILY
    part["head"].modified = part["head"].created  # the same bytes, whenever it runs
    part.recalcTimestamp = False
    subset.save_font(part, str(FONTS / f"{name}.woff2"), options)


def write_styles(parts: dict[str, list[int]]) -> str:
    """The style sheet that names all parts.

    Of two that claim a character a browser takes the one declared later: so the rare ones come
    first and may claim whole ranges, which keeps the sheet short.
    """
    faces = ["/* Written by fonts/build_fonts.py: a browser loads the parts whose characters a page shows. */\n"]
    weights = f"{WEIGHTS[0]} {WEIGHTS[1]}"
    for name, characters in reversed(parts.items()):
        claimed = characters
        if name.startswith("rare"):
            claimed = list(range(characters[0], characters[-1] + 1))
        ranges = write_ranges(claimed)
        faces.append(FACE.format(family=FAMILY, weights=weights, name=name, ranges=ranges))
    return "\n".join(faces)


def main() -> None:
    """Write all parts and the style sheet that names them."""
    FONTS.mkdir(parents=True, exist_ok=True)
    narrowed = HERE / "narrowed.ttf"
    font = instancer.instantiateVariableFont(TTFont(SOURCE), {"wght": WEIGHTS})
    font.save(narrowed)
    parts = part_characters(set(font.getBestCmap()))
    for name, characters in parts.items():
        write_part(narrowed, name, characters)
    STYLES.write_text(write_styles(parts), encoding="utf-8")
    narrowed.unlink()


if __name__ == "__main__":
    main()
