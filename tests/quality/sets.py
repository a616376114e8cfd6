"""The question sets of `../shared/data`, each as units to be found and questions that name them.

The rules are those of the data's own notes: what counts as one unit, what is taken out of it, and
which questions are asked.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import DATA

_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*$")
_SECTION_LEVELS = 3
_HEADING_ID = re.compile(r"\s*\{/\*.*?\*/\}|\s*\{#.*?\}")
_FENCE = re.compile(r"^\s*(```|~~~)")
_ARTICLE = re.compile(r"^#+\s*(제\d+조(?:의\d+)?)\s*\((.+?)\)\s*$")
_SHORTEST_SECTION = 200


@dataclass(frozen=True, slots=True)
class Unit:
    """A passage that can be the right one; `document` names the document that it stands in."""

    document: str
    title: str
    section: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the places of its right units in the set's list; none: nothing answers it."""

    text: str
    relevant: frozenset[int]


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Units, questions on them, and per document what its front matter would say."""

    name: str
    units: tuple[Unit, ...]
    questions: tuple[Asked, ...]
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def available() -> bool:
    """True where the data lies beside the project."""
    return DATA.is_dir()


def load(name: str) -> QuestionSet:
    """The set of that name, one of `NAMES`."""
    return _LOADERS[name]()


def smalltalk() -> list[str]:
    """Utterances that no document answers."""
    lines = (DATA / "ko_smalltalk/ChatbotData.part.csv").read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(line.split(",")[0].strip('"') for line in lines[1:] if line))


def unanswerable() -> list[str]:
    """Questions of clapnq_dev that its passages treat, but do not answer."""
    return [row["input"] for row in rows("clapnq_dev/clapnq_dev_unanswerable.part.jsonl")]


def _squad(name: str, path: str) -> QuestionSet:
    units: list[Unit] = []
    questions: list[Asked] = []
    for article in json.loads((DATA / path).read_text(encoding="utf-8"))["data"]:
        title = article["title"].replace("_", " ")
        for paragraph in article["paragraphs"]:
            right = frozenset([len(units)])
            units.append(Unit(title, title, "", paragraph["context"]))
            questions += [Asked(item["question"], right) for item in paragraph["qas"]]
    return QuestionSet(name, tuple(units), tuple(questions))


def _ko_docs() -> QuestionSet:
    found: list[tuple[Unit, str]] = []
    for path in sorted((DATA / "ko_docs").rglob("*.md")):
        if path.name != "SOURCE.md":
            found += _sections(path)
    counts = Counter(heading for _, heading in found)
    long = [(unit, heading) for unit, heading in found if len(unit.text) >= _SHORTEST_SECTION]
    questions = tuple(
        Asked(heading, frozenset([place]))
        for place, (_, heading) in enumerate(long)
        if counts[heading] == 1
    )
    return QuestionSet("ko_docs", tuple(unit for unit, _ in long), questions)


def _sections(path: Path) -> Iterator[tuple[Unit, str]]:
    """Every section of a Markdown file without its heading, and that heading."""
    front, body = _front_matter(path.read_text(encoding="utf-8"))
    title = front.get("title") or path.stem
    trail: list[tuple[int, str]] = []
    heading, lines, fenced = "", [], False
    for line in [*body.splitlines(), "# "]:
        fenced ^= bool(_FENCE.match(line))
        match = None if fenced else _HEADING.match(line)
        if not match or len(match[1]) > _SECTION_LEVELS:
            lines.append(line)
            continue
        if heading and (text := "\n".join(lines).strip()):
            above = " > ".join(name for _, name in trail[:-1])
            yield Unit(str(path.relative_to(DATA)), title, above, text), heading
        level, heading, lines = len(match[1]), _HEADING_ID.sub("", match[2]).strip(), []
        trail = [*((deep, name) for deep, name in trail if deep < level), (level, heading)]


def _kr_law() -> QuestionSet:
    units: list[Unit] = []
    right: dict[str, set[int]] = {}  # some laws have two articles of one title: either is right
    metadata: dict[str, Mapping[str, str]] = {}
    for path in sorted((DATA / "kr_law").rglob("*.md")):
        if path.name == "SOURCE.md":
            continue
        front, body = _front_matter(path.read_text(encoding="utf-8"))
        document, law = str(path.relative_to(DATA)), front["제목"]
        metadata[document] = {"title": law, "issuer": front.get("소관부처", "")}
        for section, title, text in _articles(body):
            right.setdefault(f"{law} {title}", set()).add(len(units))
            units.append(Unit(document, law, section, text))
    questions = tuple(Asked(text, frozenset(places)) for text, places in right.items())
    return QuestionSet("kr_law", tuple(units), questions, metadata)


def _articles(body: str) -> Iterator[tuple[str, str, str]]:
    """Each article of a law: the headings above it, its title, and its text without the title."""
    trail: list[tuple[int, str]] = []
    title, lines = "", []
    for line in [*body.splitlines(), "# "]:
        if not (match := _HEADING.match(line)):
            lines.append(line)
            continue
        if title and (text := "\n".join(lines).strip()):
            yield " > ".join(name for _, name in trail), title, text
        article, lines = _ARTICLE.match(line), []
        title = article[2] if article else ""
        if not article:
            level = len(match[1])
            trail = [*((deep, name) for deep, name in trail if deep < level), (level, match[2])]


def _ko_strategyqa() -> QuestionSet:
    path = DATA / "ko_strategyqa/ko-strategy-qa_dev.part.json"
    places: dict[str, int] = {}
    questions = []
    for item in json.loads(path.read_text(encoding="utf-8")).values():
        right = frozenset(places.setdefault(fact, len(places)) for fact in item["facts"])
        questions.append(Asked(item["question"], right))
    units = tuple(Unit(f"fact {place}", "", "", fact) for fact, place in places.items())
    return QuestionSet("ko_strategyqa", units, tuple(questions))


def _clapnq() -> QuestionSet:
    places: dict[tuple[str, str], int] = {}

    def place(passage: Mapping[str, str]) -> int:
        return places.setdefault((passage["title"], passage["text"]), len(places))

    questions = [
        Asked(row["input"], frozenset(place(passage) for passage in row["passages"]))
        for row in rows("clapnq_dev/clapnq_dev_answerable.part.jsonl")
    ]
    for row in rows("clapnq_dev/clapnq_dev_unanswerable.part.jsonl"):
        for passage in row["passages"]:
            place(passage)
    units = tuple(Unit(f"{title} {at}", title, "", text) for (title, text), at in places.items())
    return QuestionSet("clapnq_dev", units, tuple(questions))


def _mtrag(part: str) -> QuestionSet:
    """The last turns of conversations alone, on the passages of four domains as one library."""
    corpus = rows("mtrag/corpus.jsonl")
    places = {row["document_id"]: place for place, row in enumerate(corpus)}
    units = tuple(Unit(row["document_id"], row["title"], "", row["text"]) for row in corpus)
    right: dict[str, set[int]] = {}
    for path in sorted((DATA / "mtrag" / part).rglob("*.tsv")):
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            asked, passage, _ = line.split("\t")
            right.setdefault(asked, set()).add(places[passage])
    asked = (_last_turns if part == "human" else _tasks)()
    questions = tuple(
        Asked(text, frozenset(right[key])) for key, text in asked.items() if key in right
    )
    return QuestionSet(f"mtrag_{part}", units, questions)


def _last_turns() -> dict[str, str]:
    paths = sorted(DATA.glob("mtrag/human/*/*_lastturn.jsonl"))
    found = [row for path in paths for row in rows(str(path.relative_to(DATA)))]
    return {row["_id"]: row["text"].removeprefix("|user|:").strip() for row in found}


def _tasks() -> dict[str, str]:
    return {row["task_id"]: row["input"][-1]["text"] for row in rows("mtrag/un/tasks.jsonl")}


def rows(path: str) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines below `DATA`."""
    lines = (DATA / path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line]


def _front_matter(text: str) -> tuple[dict[str, str], str]:
    """The plain `key: value` pairs, the first item of lists, and the text below them."""
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    if not match:
        return {}, text
    pairs = re.findall(r"^([^\s:#-][^:\n]*):[ \t]*\n?-?[ \t]*(\S[^\n]*)$", match[1], re.MULTILINE)
    return {key: value.strip("'\" ") for key, value in reversed(pairs)}, text[match.end() :]


_LOADERS: dict[str, Callable[[], QuestionSet]] = {
    "korquad1_dev": lambda: _squad("korquad1_dev", "korquad1_dev/KorQuAD_v1.0_dev.part.json"),
    "ko_docs": _ko_docs,
    "kr_law": _kr_law,
    "ko_strategyqa": _ko_strategyqa,
    "xquad_en": lambda: _squad("xquad_en", "xquad_en/xquad.en.part.json"),
    "clapnq_dev": _clapnq,
    "mtrag_un": lambda: _mtrag("un"),
    "mtrag_human": lambda: _mtrag("human"),
}
NAMES = ("korquad1_dev", "ko_docs", "kr_law", "ko_strategyqa", "xquad_en", "clapnq_dev")
FOR_INFORMATION = ("mtrag_un", "mtrag_human")
"""Last turns of conversations, asked without what was said before."""
KOREAN = ("korquad1_dev", "ko_docs", "kr_law", "ko_strategyqa")
