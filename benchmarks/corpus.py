"""A library of our own making: Korean rules of invented towns, English notes on invented devices.

Deterministic. Every section states one fact in a sentence, which one question asks for; the rest
of the section is ordinary prose over the same words, so that many sections share each term.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

WORDS = json.loads((Path(__file__).parent / "words.json").read_text(encoding="utf-8"))
KO, EN = WORDS["ko"], WORDS["en"]
SECTION_CHARACTERS = 900
SECTIONS = 28


@dataclass(frozen=True, slots=True)
class Fact:
    """A question and the words its answer must hold."""

    question: str
    answer: str


def write(folder: Path, *, korean: int, english: int) -> tuple[list[Path], dict[str, list[Fact]]]:
    """Documents of both languages in `folder`, and the facts of each language."""
    chance = random.Random(20260)
    names = {
        "ko": [f"{_town(number)} 생활 조례 제{number + 1}편" for number in range(korean)],
        "en": [f"{_maker(number)} service notes {number + 1}" for number in range(english)],
    }
    paths: list[Path] = []
    facts: dict[str, list[Fact]] = {"ko": [], "en": []}
    for language, section in (("ko", _article), ("en", _note)):
        for number, name in enumerate(names[language]):
            sections = [section(number, index, chance) for index in range(SECTIONS)]
            path = folder / f"{name}.md"
            text = "\n\n".join([f"# {name}", *(text for text, _ in sections)])
            path.write_text(text + "\n", encoding="utf-8")
            paths.append(path)
            facts[language] += [fact for _, fact in sections]
    return paths, facts


def _town(number: int) -> str:
    return f"{KO['towns'][number % len(KO['towns'])]}시"


def _maker(number: int) -> str:
    return str(EN["makers"][number % len(EN["makers"])])


def _article(number: int, index: int, chance: random.Random) -> tuple[str, Fact]:
    things = list(KO["units"])
    matter = KO["matters"][(index + number * 3) % len(KO["matters"])]
    thing = things[(index + number) % len(things)]
    value = f"{chance.randint(3, 990)}{KO['units'][thing]}"
    subject = f"{_town(number)}의 {matter} {thing}은"
    office = chance.choice(KO["offices"])
    text = f"## 제{index + 1}조 ({matter})\n\n{subject} {value}이며, {office}에서 맡는다."
    while len(text) < SECTION_CHARACTERS:
        parts = ("subjects", "conditions", "objects", "verbs")
        text += " " + " ".join(chance.choice(KO[part]) for part in parts) + "."
    return text, Fact(f"{subject} 얼마인가요?", value)


def _note(number: int, index: int, chance: random.Random) -> tuple[str, Fact]:
    things = list(EN["units"])
    thing = things[(index + number) % len(things)]
    kind = EN["devices"][index % len(EN["devices"])]
    device = f"{_maker(number)} {kind} {chr(65 + number)}{index + 1:02d}"
    value = f"{chance.randint(2, 900)} {EN['units'][thing]}"
    text = f"## {device}\n\nThe {thing} of the {device} is {value}."
    while len(text) < SECTION_CHARACTERS:
        text += " " + chance.choice(EN["prose"])
    return text, Fact(f"What is the {thing} of the {device}?", value)
