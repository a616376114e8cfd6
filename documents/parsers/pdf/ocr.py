"""Text recognition (OCR) of pages that are pictures, by the program tesseract if it is installed.

It runs in the child's own session, limits and network namespace, gets the drawn page through a
pipe and answers with a table of words (its TSV); neither writes a file. A thread talks to it, which
knows nothing of PDFium, so that further pages are read meanwhile.
"""

import csv
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice
from math import sqrt
from statistics import median
from threading import Timer
from typing import Any, NamedTuple

from documents.parsers.base import ReadingContext
from documents.parsers.pdf.geometry import PageFrame, Rect, find_bounding_box
from documents.parsers.pdf.lines import TextRow
from documents.parsers.pdf.pdfium import IMAGE, PATH
from documents.parsers.pdf.text_runs import TextRun
from documents.parsers.text import clean_text, is_readable

_TSV_COLUMNS = 12
_WORD_LEVEL = "5"
_LEAST_CONFIDENCE = 30.0
"""Of 100; words below are specks and pictures more often than words."""
_SPACE = 0.25
"""Gap in em that counts as a space: tesseract cuts Hangul words into syllables."""
_BY_CENTRES = 0.4
"""How much the distance of two syllables is that of their centres rather than their edges."""
_OPPOSITE = 2
"""Quarter turns."""


LANGUAGES = ("kor", "eng")
ORIENTATION = "osd"
"""Part of every tesseract; detects how a page is rotated."""
_DPI = 220
"""The Korean model reads body text best at this size, and worse where letters are larger."""
_POINTS = 72
_MOST_PIXELS = 12_000_000
"""Of a drawn page; a larger one is drawn smaller."""
_UNSURE = 80.0
"""Confidence (of 100) below which a page may be upside down. Good pages reach 85."""
_NOISE = 65.0
"""Pages below are in other scripts, or no text."""
_COLUMNS, _ONE_BLOCK = "3", "6"
"""Ways to divide a page (--psm): into the blocks that are found on it, or not at all."""
_SPARSE = 200
"""Letters of a page below which dividing it may have lost the words that stand apart."""
_SHORT = 2
"""Letters of words that may be higher than wide."""
_FEW_LETTERS = 40
"""What scanners stamp onto a page is not more."""
_LEAST_PIXELS = 300_000
"""Of a scan: A4 at 55 dpi."""
_OUTLINES = 100
"""Shapes on a page without text from which they may be letters."""
_MOST_OBJECTS = 5_000
_LARGEST = 200_000_000
"""Pixels of a picture, declared, beyond which its page is not drawn for recognition."""
_ASK_SECONDS = 10
_MOST_AT_ONCE = 4
"""Pages that are recognised at the same time; each takes some 100 MB."""
_ROTATE = re.compile(r"^Rotate: (90|180|270)$", re.MULTILINE)


class RecognisedWord(NamedTuple):
    """A word or part of one, in fractions of the picture; `line` identifies its line."""

    line: tuple[str, ...]
    text: str
    confidence: float
    box: Rect


@dataclass(frozen=True, slots=True)
class _DrawnPage:
    """A page as a grey picture, one byte a pixel, turned clockwise by quarters."""

    width: int
    height: int
    pixels: bytes
    dpi: int
    turns: int = 0

    def rotate(self, turns: int) -> "_DrawnPage":
        """The upright page turned by 1 to 3 quarters."""
        from PIL import Image

        clockwise = (
            Image.Transpose.ROTATE_270,
            Image.Transpose.ROTATE_180,
            Image.Transpose.ROTATE_90,
        )
        upright = Image.frombytes("L", (self.width, self.height), self.pixels)
        image = upright.transpose(clockwise[turns - 1])
        return _DrawnPage(image.width, image.height, image.tobytes(), self.dpi, turns)


@dataclass(frozen=True, slots=True)
class _Result:
    """What was read of a picture; `table` is how the program said it."""

    table: str
    words: list[RecognisedWord]
    drawn: _DrawnPage

    @classmethod
    def read(cls, table: str, drawn: _DrawnPage) -> "_Result":
        """By what the program said of the picture."""
        return cls(table, list(parse_words(table, drawn.width, drawn.height)), drawn)

    @classmethod
    def restore(cls, table: str, width: int, height: int, turns: int) -> "_Result":
        """From its plain values."""
        return cls.read(table, _DrawnPage(width, height, b"", 0, turns))

    def to_values(self) -> list[object]:
        """As plain values, without the pixels."""
        return [self.table, self.drawn.width, self.drawn.height, self.drawn.turns]

    @property
    def confidence(self) -> float:
        """Of 100."""
        return compute_mean_confidence(self.words)

    @property
    def is_text(self) -> bool:
        """Whether it may be text."""
        return self.confidence >= _NOISE

    @property
    def is_level(self) -> bool:
        """Whether most words go across the picture; tesseract may read others on their side."""
        boxes = [word.box for word in self.words if len(word.text) > _SHORT]
        upright = sum(
            (box.y1 - box.y0) * self.drawn.height > (box.x1 - box.x0) * self.drawn.width
            for box in boxes
        )
        return upright * 2 <= len(boxes)

    @property
    def letter_count(self) -> int:
        """How many were read."""
        return sum(len(word.text) for word in self.words)


def find_program() -> str | None:
    """The path of tesseract if it is installed with all `LANGUAGES`."""
    path = shutil.which("tesseract")
    if path is None:
        return None
    try:
        listed = subprocess.run(
            [path, "--list-langs"], capture_output=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    known = set(listed.stdout.decode(errors="replace").split())
    return path if known.issuperset((*LANGUAGES, ORIENTATION)) else None


def is_scan(page: Any, text: str) -> bool:
    """Whether an open page with this text is a picture of a page: hardly a letter, large images."""
    letters = len("".join(text.split()))
    if letters > _FEW_LETTERS:
        return False
    pixels, shapes = 0, 0
    for item in islice(page.get_objects(), _MOST_OBJECTS):
        shapes += item.type == PATH
        if item.type == IMAGE:
            width, height = item.get_px_size()
            pixels += width * height
    return _LEAST_PIXELS <= pixels <= _LARGEST or (not letters and shapes >= _OUTLINES)


class Recogniser:
    """Reads the pictured pages of one document, as many as the limits allow."""

    def __init__(self, context: ReadingContext) -> None:
        self.at_once = min(len(os.sched_getaffinity(0)), _MOST_AT_ONCE)
        """Pages recognised at the same time."""
        self._context = context
        self._left = context.limits.recognised_pages
        self._program: str | None = None
        self._asked = False
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="recognition")

    def begin(self, page: Any, index: int) -> "Recognition | None":
        """Start on an open page, which may be closed afterwards; None if it is not to be read."""
        known = self._context.recognised.get(index)
        if known is None and not self._is_installed():
            self._context.warn("scanned_pages")
            return None
        if self._left <= 0:
            self._context.warn("ocr_skipped")
            return None
        if known is not None:
            self._left -= 1
            return Recognition(self._context, index, _Result.restore(*known))
        drawn = _draw_page(page)
        if drawn is None:
            return None
        self._left -= 1
        self._context.announce_recognition()
        tesseract = _Tesseract(str(self._program), self._context.limits.seconds_per_recognised_page)
        return Recognition(self._context, index, self._threads.submit(tesseract.read_best, drawn))

    def _is_installed(self) -> bool:
        """Whether there is a program; looked for when the first page asks."""
        if not self._asked:
            self._asked = True
            self._program = find_program() if self._left else None
        return self._program is not None


class Recognition:
    """A page that is being recognised in another thread, or was in a reading before this one."""

    def __init__(
        self, context: ReadingContext, index: int, result: "Future[_Result] | _Result"
    ) -> None:
        self._context, self._index = context, index
        self._result = result

    @property
    def is_done(self) -> bool:
        """Whether `wait_for_rows` would not wait."""
        return isinstance(self._result, _Result) or self._result.done()

    def wait_for_rows(self) -> list[TextRow]:
        """Its lines in reading order; none, with a warning, where it cannot be read."""
        self._context.no_text = "unrecognised"
        try:
            result = self._wait_for_result()
        except (OSError, subprocess.SubprocessError):
            self._context.warn("page_unreadable")
            return []
        if not result.is_text:
            if result.words:
                self._context.warn("page_unreadable")
            return []
        aspect = result.drawn.height / result.drawn.width
        return build_rows(result.words, aspect, result.drawn.turns)

    def _wait_for_result(self) -> _Result:
        """What was read, which is handed on once. Raises as `_Tesseract.read_best`."""
        if isinstance(self._result, _Result):
            return self._result
        result = self._result.result()
        self._context.keep_recognised(self._index, result.to_values())
        return result


class _Tesseract:
    """Reads one page by the program at this path, within so many seconds."""

    def __init__(self, path: str, seconds: float) -> None:
        self._path, self._seconds = path, seconds
        self._until = 0.0

    def read_best(self, drawn: _DrawnPage) -> _Result:
        """The page as it is, or rotated if it reads better that way. Raises as `_run_program`."""
        self._until = time.monotonic() + self._seconds
        result = self._read(drawn, _COLUMNS)
        if result.words and (result.confidence < _UNSURE or not result.is_level):
            turn = _ROTATE.search(self._run_program(drawn, ORIENTATION, "--psm", "0"))
            other = self._read(drawn.rotate(int(turn[1]) // 90), _COLUMNS) if turn else result
            result = max(result, other, key=lambda read: (read.is_level, read.confidence))
        if result.letter_count < _SPARSE:
            whole = self._read(result.drawn, _ONE_BLOCK)
            result = whole if whole.is_text and whole.letter_count > result.letter_count else result
        return result

    def _read(self, drawn: _DrawnPage, division: str) -> _Result:
        """The words of a picture. Raises as `_run_program`."""
        table = self._run_program(drawn, "+".join(LANGUAGES), "--psm", division, "tsv")
        return _Result.read(table, drawn)

    def _run_program(self, drawn: _DrawnPage, language: str, *options: str) -> str:
        """What the program says of a picture. Raises OSError or SubprocessError.

        Whoever forked this process ends the program with it: a signal from the kernel would need
        code between fork and execution, which must not run beside threads.
        """
        command = [self._path, "stdin", "stdout", "-l", language, "--dpi", str(drawn.dpi)]
        with subprocess.Popen(
            [*command, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "OMP_THREAD_LIMIT": "1"},
            bufsize=0,
        ) as process:
            alarm = Timer(max(self._until - time.monotonic(), 0), process.kill)
            alarm.start()
            try:
                said = _exchange(process, drawn)
            finally:
                alarm.cancel()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        return said.decode(errors="replace")


def _exchange(process: "subprocess.Popen[bytes]", drawn: _DrawnPage) -> bytes:
    """All that the program says when it has seen the picture.

    `communicate` would hand it over in pieces of 512 bytes and wait with each for its turn beside
    the thread that reads pages.
    """
    assert process.stdin  # noqa: S101 - for the type checker
    assert process.stdout  # noqa: S101
    rest = memoryview(b"P5 %d %d 255\n" % (drawn.width, drawn.height) + drawn.pixels)
    with process.stdin as pipe:
        while rest:
            rest = rest[pipe.write(rest) :]
    return process.stdout.read()


def _draw_page(page: Any) -> _DrawnPage | None:
    """The page as displayed; None if it is a single shade of grey."""
    width, height = page.get_size()
    dpi = min(_DPI, _POINTS * sqrt(_MOST_PIXELS / max(width * height, 1)))
    image = page.render(scale=dpi / _POINTS, grayscale=True).to_pil().convert("L")
    low, high = image.getextrema()
    if low == high:
        return None
    return _DrawnPage(image.width, image.height, image.tobytes(), round(dpi))


def parse_words(table: str, width: int, height: int) -> Iterator[RecognisedWord]:
    """Words of a picture of that many pixels, as far as they are sure enough."""
    for row in csv.reader(table.splitlines()[1:], delimiter="\t", quoting=csv.QUOTE_NONE):
        if len(row) != _TSV_COLUMNS or row[0] != _WORD_LEVEL:
            continue
        text, confidence = clean_text(row[-1]).strip(), float(row[10])
        if is_readable(text) and confidence >= _LEAST_CONFIDENCE:
            left, top, wide, high = map(int, row[6:10])
            box = Rect(left / width, top / height, (left + wide) / width, (top + high) / height)
            yield RecognisedWord(tuple(row[1:5]), text, confidence, box)


def compute_mean_confidence(found: Sequence[RecognisedWord]) -> float:
    """Mean of all characters, of 100; 0 without any."""
    characters = sum(len(word.text) for word in found)
    total = sum(word.confidence * len(word.text) for word in found)
    return total / characters if characters else 0.0


def build_rows(found: Iterable[RecognisedWord], aspect: float, turns: int) -> list[TextRow]:
    """Lines of words, as they stand on the page.

    `aspect` is the picture's height by its width. `turns` are the quarters by which the picture
    was turned clockwise against the page.
    """
    lines = (list(line) for _, line in groupby(found, lambda word: word.line))
    return [_to_row(line, number, aspect, turns) for number, line in enumerate(lines)]


def _to_row(line: Sequence[RecognisedWord], number: int, aspect: float, turns: int) -> TextRow:
    """One line; letters of a word share its width."""
    y0, y1 = median(word.box.y0 for word in line), median(word.box.y1 for word in line)
    text, edges = "", list[float]()
    for index, word in enumerate(line):
        if index and _is_space(line[index - 1], word, (y1 - y0) * aspect):
            edges.append(max(line[index - 1].box.x1, edges[-1]))
            text += " "
        start = max(word.box.x0, edges[-1]) if edges else word.box.x0
        step = (max(word.box.x1, start) - start) / len(word.text)
        edges += [start + step * place for place in range(len(word.text))]
        text += word.text
    edges.append(max(line[-1].box.x1, edges[-1]))
    run = TextRun(text, edges, Rect(edges[0], y0, edges[-1], y1), number)
    return _turn_run(run, turns, aspect)


def _turn_run(run: TextRun, turns: int, aspect: float) -> TextRow:
    """A line of a rotated picture in page coordinates."""
    if turns == 0:
        return TextRow([run], run.box, run.height, aspect)
    if turns == _OPPOSITE:
        run.edges, run.box = [1 - edge for edge in run.edges], _turn_box_back(run.box, turns)
        return TextRow([run], run.box, run.height, aspect)
    runs = list[TextRun]()
    for place, letter in enumerate(run.text):
        box = _turn_box_back(run.box._replace(x0=run.edges[place], x1=run.edges[place + 1]), turns)
        if letter.isspace() and runs:
            runs[-1].spaced = True
        else:
            runs.append(TextRun(letter, [box.x0, box.x1], box, run.row))
    box = find_bounding_box(each.box for each in runs)
    return TextRow(runs, box, max(each.height for each in runs), 1 / aspect, down=True)


def _turn_box_back(box: Rect, turns: int) -> Rect:
    """A box of the turned picture on the page."""
    frame = PageFrame(0, 0, 1, 1, (4 - turns) % 4)
    return frame.to_view(box.x0, 1 - box.y1, box.x1, 1 - box.y0)


def _is_space(word: RecognisedWord, following: RecognisedWord, em: float) -> bool:
    """Whether a space stands between two neighbours; `em` as a fraction of the width.

    Boxes of syllables are as wide as their ink, so their centres have a say too.
    """
    left, right = _is_hangul(word.text[-1]), _is_hangul(following.text[0])
    if not (left or right):
        return True
    gap = following.box.x0 - word.box.x1
    if left and right:
        centres = gap + (_measure_character_width(word) + _measure_character_width(following)) / 2
        gap += _BY_CENTRES * (centres - em - gap)
    return gap > _SPACE * em


def _measure_character_width(word: RecognisedWord) -> float:
    """Of one of its characters."""
    return (word.box.x1 - word.box.x0) / len(word.text)


def _is_hangul(character: str) -> bool:
    return "가" <= character <= "힣"
