"""Text recognition (OCR) of pages that are pictures, by the program tesseract if it is installed.

It runs in the child's own session, limits and network namespace. It receives the drawn page through
a pipe and returns a table of words (its TSV); neither side writes a file. It is called in a thread
that never touches PDFium, so that further pages can be read meanwhile.
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
_MIN_WORD_CONFIDENCE = 30.0
"""Of 100; what is below is more often specks and pictures than words."""
_MIN_SPACE_EMS = 0.25
"""Gap in em that counts as a space: tesseract cuts Hangul words into syllables."""
_CENTRE_WEIGHT = 0.4
"""Weight of the distance between the centres of two syllables; the rest is that of their edges."""
_HALF_TURN = 2
"""In quarter turns."""


LANGUAGES = ("kor", "eng")
ORIENTATION = "osd"
"""Part of every tesseract; detects how a page is rotated."""
_DPI = 220
"""The Korean model reads body text best at this size; larger letters it reads worse."""
_POINTS_PER_INCH = 72
_MAX_DRAWN_PIXELS = 12_000_000
"""Of a drawn page; larger pages are drawn at a lower resolution."""
_MIN_SURE_CONFIDENCE = 80.0
"""Confidence (of 100) below which a page may be upside down. Good pages reach 85."""
_MIN_TEXT_CONFIDENCE = 65.0
"""Confidence (of 100) below which a page is in another script, or has no text."""
_COLUMNS, _ONE_BLOCK = "3", "6"
"""Page segmentation modes (--psm): automatic, or the page as one block."""
_MIN_DENSE_LETTERS = 200
"""With fewer letters on a page, its segmentation may have missed isolated words."""
_MAX_SHORT_WORD_LETTERS = 2
"""Letters of a word that may be higher than wide although it is upright."""
_MAX_STAMPED_LETTERS = 40
"""Letters that a scanner may stamp onto a page."""
_MIN_SCAN_PIXELS = 300_000
"""Pixels of a scan: A4 at 55 dpi."""
_MIN_OUTLINE_SHAPES = 100
"""Number of shapes on a page without text from which they may be outlines of letters."""
_MAX_OBJECTS = 5_000
_MAX_SCAN_PIXELS = 200_000_000
"""Declared pixels of a page's pictures; a page with more is not drawn for recognition."""
_ASK_SECONDS = 10
_MAX_PAGES_AT_ONCE = 4
"""Pages that are recognised at the same time; each takes some 100 MB."""
_ROTATE = re.compile(r"^Rotate: (90|180|270)$", re.MULTILINE)


class RecognisedWord(NamedTuple):
    """A word or part of one; `box` is in fractions of the picture, `line` identifies its line."""

    line: tuple[str, ...]
    text: str
    confidence: float
    box: Rect


@dataclass(frozen=True, slots=True)
class _DrawnPage:
    """A page as a greyscale picture, one byte a pixel; `turns` are quarter turns clockwise."""

    width: int
    height: int
    pixels: bytes
    dpi: int
    turns: int = 0

    def rotate(self, turns: int) -> "_DrawnPage":
        """The upright page rotated clockwise by 1 to 3 quarter turns."""
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
    """What was recognised in a picture; `table` is the program's output."""

    table: str
    words: list[RecognisedWord]
    drawn: _DrawnPage

    @classmethod
    def from_table(cls, table: str, drawn: _DrawnPage) -> "_Result":
        """From the program's output."""
        return cls(table, list(parse_words(table, drawn.width, drawn.height)), drawn)

    @classmethod
    def from_values(cls, table: str, width: int, height: int, turns: int) -> "_Result":
        """From what `to_values` returned."""
        return cls.from_table(table, _DrawnPage(width, height, b"", 0, turns))

    def to_values(self) -> list[object]:
        """Plain JSON values, without the pixels."""
        return [self.table, self.drawn.width, self.drawn.height, self.drawn.turns]

    @property
    def confidence(self) -> float:
        """The mean of all characters, of 100."""
        return compute_mean_confidence(self.words)

    @property
    def is_text(self) -> bool:
        """Whether it may be text."""
        return self.confidence >= _MIN_TEXT_CONFIDENCE

    @property
    def is_level(self) -> bool:
        """Whether most words are horizontal; tesseract may also read words that are sideways."""
        boxes = [word.box for word in self.words if len(word.text) > _MAX_SHORT_WORD_LETTERS]
        upright = sum(
            (box.y1 - box.y0) * self.drawn.height > (box.x1 - box.x0) * self.drawn.width
            for box in boxes
        )
        return upright * 2 <= len(boxes)

    @property
    def letter_count(self) -> int:
        """Number of recognised characters."""
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
    installed = set(listed.stdout.decode(errors="replace").split())
    return path if installed.issuperset((*LANGUAGES, ORIENTATION)) else None


def is_scan(page: Any, text: str) -> bool:
    """Whether an open page with this text is a picture of a page: few letters and large images."""
    letters = len("".join(text.split()))
    if letters > _MAX_STAMPED_LETTERS:
        return False
    pixels, shape_count = 0, 0
    for item in islice(page.get_objects(), _MAX_OBJECTS):
        shape_count += item.type == PATH
        if item.type == IMAGE:
            width, height = item.get_px_size()
            pixels += width * height
    return _MIN_SCAN_PIXELS <= pixels <= _MAX_SCAN_PIXELS or (
        not letters and shape_count >= _MIN_OUTLINE_SHAPES
    )


class Recogniser:
    """Reads the pictured pages of one document, as many as the limits allow."""

    def __init__(self, context: ReadingContext) -> None:
        self.max_at_once = min(len(os.sched_getaffinity(0)), _MAX_PAGES_AT_ONCE)
        """Pages recognised at the same time."""
        self._context = context
        self._pages_left = context.limits.recognised_pages
        self._program: str | None = None
        self._has_looked = False
        self._threads = ThreadPoolExecutor(self.max_at_once, thread_name_prefix="recognition")

    def begin_page(self, page: Any, index: int) -> "Recognition | None":
        """Start to recognise an open page, which may be closed afterwards; None if it cannot be."""
        stored = self._context.recognised.get(index)
        if stored is None and not self._is_installed():
            self._context.warn("scanned_pages")
            return None
        if self._pages_left <= 0:
            self._context.warn("ocr_skipped")
            return None
        if stored is not None:
            self._pages_left -= 1
            return Recognition(self._context, index, _Result.from_values(*stored))
        drawn = _draw_page(page)
        if drawn is None:
            return None
        self._pages_left -= 1
        self._context.announce_recognition()
        tesseract = _Tesseract(str(self._program), self._context.limits.seconds_per_recognised_page)
        return Recognition(self._context, index, self._threads.submit(tesseract.read_best, drawn))

    def _is_installed(self) -> bool:
        """Whether tesseract is installed, which is found out once, for the first page."""
        if not self._has_looked:
            self._has_looked = True
            self._program = find_program() if self._pages_left else None
        return self._program is not None


class Recognition:
    """A page that another thread is recognising, or that an earlier attempt recognised."""

    def __init__(
        self, context: ReadingContext, index: int, result: "Future[_Result] | _Result"
    ) -> None:
        self._context, self._index = context, index
        self._result = result

    @property
    def is_done(self) -> bool:
        """Whether `wait_for_rows` would return at once."""
        return isinstance(self._result, _Result) or self._result.done()

    def wait_for_rows(self) -> list[TextRow]:
        """Its lines in reading order; none, with a warning, if it cannot be read."""
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
        """The result, passed on for later attempts. Raises as `_Tesseract.read_best`."""
        if isinstance(self._result, _Result):
            return self._result
        result = self._result.result()
        self._context.keep_recognised(self._index, result.to_values())
        return result


class _Tesseract:
    """Recognises one page with the program at `path`, within `seconds`."""

    def __init__(self, path: str, seconds: float) -> None:
        self._path, self._seconds = path, seconds
        self._until = 0.0

    def read_best(self, drawn: _DrawnPage) -> _Result:
        """Recognise the page as it is, or rotated if that is better. Raises as `_run_program`."""
        self._until = time.monotonic() + self._seconds
        result = self._read(drawn, _COLUMNS)
        if result.words and (result.confidence < _MIN_SURE_CONFIDENCE or not result.is_level):
            rotation = _ROTATE.search(self._run_program(drawn, ORIENTATION, "--psm", "0"))
            rotated = (
                self._read(drawn.rotate(int(rotation[1]) // 90), _COLUMNS) if rotation else result
            )
            result = max(
                result, rotated, key=lambda candidate: (candidate.is_level, candidate.confidence)
            )
        if result.letter_count < _MIN_DENSE_LETTERS:
            undivided = self._read(result.drawn, _ONE_BLOCK)
            result = (
                undivided
                if undivided.is_text and undivided.letter_count > result.letter_count
                else result
            )
        return result

    def _read(self, drawn: _DrawnPage, division: str) -> _Result:
        """Recognise a picture. Raises as `_run_program`."""
        table = self._run_program(drawn, "+".join(LANGUAGES), "--psm", division, "tsv")
        return _Result.from_table(table, drawn)

    def _run_program(self, drawn: _DrawnPage, language: str, *options: str) -> str:
        """The program's output for a picture. Raises OSError or SubprocessError.

        The server that forked this process kills the program with it. The kernel could do so only
        if code ran between fork and exec, which is unsafe in a process with threads.
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
                output = _send_picture(process, drawn)
            finally:
                alarm.cancel()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        return output.decode(errors="replace")


def _send_picture(process: "subprocess.Popen[bytes]", drawn: _DrawnPage) -> bytes:
    """Send the picture to the program and return all of its output.

    `communicate` would send it in pieces of 512 bytes, and for each wait for the lock that the
    thread reading pages holds.
    """
    assert process.stdin  # noqa: S101 - for the type checker
    assert process.stdout  # noqa: S101
    remaining = memoryview(b"P5 %d %d 255\n" % (drawn.width, drawn.height) + drawn.pixels)
    with process.stdin as pipe:
        while remaining:
            remaining = remaining[pipe.write(remaining) :]
    return process.stdout.read()


def _draw_page(page: Any) -> _DrawnPage | None:
    """The page as displayed; None if it is a single shade of grey."""
    width, height = page.get_size()
    dpi = min(_DPI, _POINTS_PER_INCH * sqrt(_MAX_DRAWN_PIXELS / max(width * height, 1)))
    image = page.render(scale=dpi / _POINTS_PER_INCH, grayscale=True).to_pil().convert("L")
    low, high = image.getextrema()
    if low == high:
        return None
    return _DrawnPage(image.width, image.height, image.tobytes(), round(dpi))


def parse_words(table: str, width: int, height: int) -> Iterator[RecognisedWord]:
    """The words of the program's output that are certain enough (size of the picture in pixels)."""
    for row in csv.reader(table.splitlines()[1:], delimiter="\t", quoting=csv.QUOTE_NONE):
        if len(row) != _TSV_COLUMNS or row[0] != _WORD_LEVEL:
            continue
        text, confidence = clean_text(row[-1]).strip(), float(row[10])
        if is_readable(text) and confidence >= _MIN_WORD_CONFIDENCE:
            left, top, word_width, word_height = map(int, row[6:10])
            box = Rect(
                left / width,
                top / height,
                (left + word_width) / width,
                (top + word_height) / height,
            )
            yield RecognisedWord(tuple(row[1:5]), text, confidence, box)


def compute_mean_confidence(words: Sequence[RecognisedWord]) -> float:
    """Mean confidence of all characters, of 100; 0 without any."""
    characters = sum(len(word.text) for word in words)
    total = sum(word.confidence * len(word.text) for word in words)
    return total / characters if characters else 0.0


def build_rows(words: Iterable[RecognisedWord], aspect: float, turns: int) -> list[TextRow]:
    """Lines of recognised words, in fractions of the page.

    `aspect` is the picture's height by its width. `turns` are the quarter turns clockwise by which
    the picture was rotated against the page.
    """
    lines = (list(line) for _, line in groupby(words, lambda word: word.line))
    return [_to_row(line, number, aspect, turns) for number, line in enumerate(lines)]


def _to_row(line: Sequence[RecognisedWord], number: int, aspect: float, turns: int) -> TextRow:
    """The line of these words; the letters of a word share its width equally."""
    y0, y1 = median(word.box.y0 for word in line), median(word.box.y1 for word in line)
    text, edges = "", list[float]()
    for index, word in enumerate(line):
        if index and _is_space(line[index - 1], word, (y1 - y0) * aspect):
            edges.append(max(line[index - 1].box.x1, edges[-1]))
            text += " "
        start = max(word.box.x0, edges[-1]) if edges else word.box.x0
        step = (max(word.box.x1, start) - start) / len(word.text)
        edges += [start + step * offset for offset in range(len(word.text))]
        text += word.text
    edges.append(max(line[-1].box.x1, edges[-1]))
    run = TextRun(text, edges, Rect(edges[0], y0, edges[-1], y1), number)
    return _to_page_row(run, turns, aspect)


def _to_page_row(run: TextRun, turns: int, aspect: float) -> TextRow:
    """Convert a line of a rotated picture to page coordinates."""
    if turns == 0:
        return TextRow([run], run.box, run.height, aspect)
    if turns == _HALF_TURN:
        run.edges, run.box = [1 - edge for edge in run.edges], _to_page_box(run.box, turns)
        return TextRow([run], run.box, run.height, aspect)
    runs = list[TextRun]()
    for index, letter in enumerate(run.text):
        box = _to_page_box(run.box._replace(x0=run.edges[index], x1=run.edges[index + 1]), turns)
        if letter.isspace() and runs:
            runs[-1].space_after = True
        else:
            runs.append(TextRun(letter, [box.x0, box.x1], box, run.line_number))
    box = find_bounding_box(letter_run.box for letter_run in runs)
    return TextRow(
        runs, box, max(letter_run.height for letter_run in runs), 1 / aspect, is_vertical=True
    )


def _to_page_box(box: Rect, turns: int) -> Rect:
    """Convert a box of a rotated picture to page coordinates."""
    frame = PageFrame(0, 0, 1, 1, (4 - turns) % 4)
    return frame.to_view(box.x0, 1 - box.y1, box.x1, 1 - box.y0)


def _is_space(word: RecognisedWord, following: RecognisedWord, em: float) -> bool:
    """Whether there is a space between two neighbours; `em` is a fraction of the picture's width.

    Boxes of syllables are only as wide as their ink, so their centres count, too.
    """
    is_left_hangul, is_right_hangul = _is_hangul(word.text[-1]), _is_hangul(following.text[0])
    if not (is_left_hangul or is_right_hangul):
        return True
    gap = following.box.x0 - word.box.x1
    if is_left_hangul and is_right_hangul:
        centres = gap + (_compute_character_width(word) + _compute_character_width(following)) / 2
        gap += _CENTRE_WEIGHT * (centres - em - gap)
    return gap > _MIN_SPACE_EMS * em


def _compute_character_width(word: RecognisedWord) -> float:
    """The mean width of its characters."""
    return (word.box.x1 - word.box.x0) / len(word.text)


def _is_hangul(character: str) -> bool:
    return "가" <= character <= "힣"
