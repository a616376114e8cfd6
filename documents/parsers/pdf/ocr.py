"""Text recognition (OCR) of pages that are pictures, by the program tesseract if it is installed.

It runs in the child's own session, limits and network namespace, gets the drawn page through a
pipe and answers with a table of words; neither writes a file. A thread talks to it, which knows
nothing of PDFium, so that further pages are read meanwhile.
"""

import os
import re
import shutil
import subprocess
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from math import sqrt
from threading import Timer
from typing import Any

from documents.parsers.base import Context
from documents.parsers.pdf.ocr_words import Word, confidence, rows, words
from documents.parsers.pdf.rows import Row

LANGUAGES = ("kor", "eng")
ORIENTATION = "osd"
"""Comes with every tesseract; tells how a page is turned."""
_DPI = 220
"""The Korean model reads body text best at this size, and worse where letters are larger."""
_POINTS = 72
_MOST_PIXELS = 12_000_000
"""Of a drawn page; a larger one is drawn smaller."""
_UNSURE = 80.0
"""Of 100: pages below may stand on their head. Pages that are read well have 85 and more."""
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
_PATH, _IMAGE = 2, 3
"""FPDF_PAGEOBJ_PATH, FPDF_PAGEOBJ_IMAGE."""
_ROTATE = re.compile(r"^Rotate: (90|180|270)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A page as a grey picture, one byte a pixel, turned clockwise by quarters."""

    width: int
    height: int
    pixels: bytes
    dpi: int
    turns: int = 0

    def turned(self, turns: int) -> "_Drawn":
        """The upright page turned by 1 to 3 quarters."""
        from PIL import Image

        clockwise = (
            Image.Transpose.ROTATE_270,
            Image.Transpose.ROTATE_180,
            Image.Transpose.ROTATE_90,
        )
        upright = Image.frombytes("L", (self.width, self.height), self.pixels)
        image = upright.transpose(clockwise[turns - 1])
        return _Drawn(image.width, image.height, image.tobytes(), self.dpi, turns)


@dataclass(frozen=True, slots=True)
class _Result:
    """What was read of a picture."""

    words: list[Word]
    drawn: _Drawn

    @property
    def confidence(self) -> float:
        """Of 100."""
        return confidence(self.words)

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
    def letters(self) -> int:
        """How many were read."""
        return sum(len(word.text) for word in self.words)


def program() -> str | None:
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
        shapes += item.type == _PATH
        if item.type == _IMAGE:
            width, height = item.get_px_size()
            pixels += width * height
    return _LEAST_PIXELS <= pixels <= _LARGEST or (not letters and shapes >= _OUTLINES)


class Recogniser:
    """Reads the pictured pages of one document, as many as the limits allow."""

    def __init__(self, context: Context) -> None:
        self.at_once = min(len(os.sched_getaffinity(0)), _MOST_AT_ONCE)
        """So many pages are recognised at the same time."""
        self._context = context
        self._left = context.limits.recognised_pages
        self._program: str | None = None
        self._asked = False
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="recognition")

    def begin(self, page: Any) -> "Recognition | None":
        """Begin with an open page, which may be closed then; None where it is not to be read."""
        if not self._is_there():
            self._context.warn("scanned_pages")
            return None
        if self._left <= 0:
            self._context.warn("ocr_skipped")
            return None
        drawn = _draw(page)
        if drawn is None:
            return None
        self._left -= 1
        self._context.recognising()
        return Recognition(self._context, str(self._program), drawn, self._threads)

    def _is_there(self) -> bool:
        """Whether there is a program; looked for when the first page asks."""
        if not self._asked:
            self._asked = True
            self._program = program() if self._left else None
        return self._program is not None


class Recognition:
    """A page that is being recognised in one of these threads."""

    def __init__(
        self, context: Context, path: str, drawn: _Drawn, threads: ThreadPoolExecutor
    ) -> None:
        self._context, self._path = context, path
        self._seconds = context.limits.seconds_per_recognised_page
        self._until = 0.0
        self._result: Future[_Result] = threads.submit(self._best, drawn)

    @property
    def done(self) -> bool:
        """Whether `rows` would not wait."""
        return self._result.done()

    def rows(self) -> list[Row]:
        """Its lines in reading order; none, with a warning, where it cannot be read."""
        self._context.no_text = "unrecognised"
        try:
            result = self._result.result()
        except (OSError, subprocess.SubprocessError):
            self._context.warn("page_unreadable")
            return []
        if not result.is_text:
            if result.words:
                self._context.warn("page_unreadable")
            return []
        aspect = result.drawn.height / result.drawn.width
        return rows(result.words, aspect, result.drawn.turns)

    def _best(self, drawn: _Drawn) -> _Result:
        """The page as it is, or turned where that is how it reads. Raises as `_ask`."""
        self._until = time.monotonic() + self._seconds
        result = self._read(drawn, _COLUMNS)
        if result.words and (result.confidence < _UNSURE or not result.is_level):
            turn = _ROTATE.search(self._ask(drawn, ORIENTATION, "--psm", "0"))
            other = self._read(drawn.turned(int(turn[1]) // 90), _COLUMNS) if turn else result
            result = max(result, other, key=lambda read: (read.is_level, read.confidence))
        if result.letters < _SPARSE:
            whole = self._read(result.drawn, _ONE_BLOCK)
            result = whole if whole.is_text and whole.letters > result.letters else result
        return result

    def _read(self, drawn: _Drawn, division: str) -> _Result:
        """The words of a picture. Raises as `_ask`."""
        table = self._ask(drawn, "+".join(LANGUAGES), "--psm", division, "tsv")
        return _Result(list(words(table, drawn.width, drawn.height)), drawn)

    def _ask(self, drawn: _Drawn, language: str, *options: str) -> str:
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
                said = _exchanged(process, drawn)
            finally:
                alarm.cancel()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        return said.decode(errors="replace")


def _exchanged(process: "subprocess.Popen[bytes]", drawn: _Drawn) -> bytes:
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


def _draw(page: Any) -> _Drawn | None:
    """The page as shown; None where it is all of one grey."""
    width, height = page.get_size()
    dpi = min(_DPI, _POINTS * sqrt(_MOST_PIXELS / max(width * height, 1)))
    image = page.render(scale=dpi / _POINTS, grayscale=True).to_pil().convert("L")
    low, high = image.getextrema()
    if low == high:
        return None
    return _Drawn(image.width, image.height, image.tobytes(), round(dpi))
