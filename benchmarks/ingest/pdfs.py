"""PDFs to be read: real ones, and longer ones made of their pages."""

import itertools
from pathlib import Path

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
KOREAN = "hwp/hancom_spec_pairs"
ENGLISH = ("pdf/docling", "pdf/us_public_records", "pdf/py-pdf_sample-files")
LEAST_CHARACTERS = 200
"""A page: below it there is too little text to speak of reading it."""


def available() -> bool:
    """Whether the data lies beside the project."""
    return (DATA / KOREAN).exists()


def korean() -> list[Path]:
    """Korean specifications of 47 and 71 pages, with tables."""
    return sorted((DATA / KOREAN).glob("*.pdf"))


def english() -> list[Path]:
    """English reports, papers and records that hold text."""
    found = [path for name in ENGLISH for path in sorted((DATA / name).rglob("*.pdf"))]
    return [path for path in found if _telling(path)]


def _telling(path: Path) -> bool:
    """Whether every other page at least holds text that can be read."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(path)
        texts = [page.get_textpage().get_text_range() for page in document]
    except pypdfium2.PdfiumError:
        return False
    letters = "".join(texts)
    latin = sum(character.isascii() and character.isalpha() for character in letters)
    return len(letters) >= LEAST_CHARACTERS * len(texts) and latin > len(letters) / 2


def pages(path: Path) -> int:
    """How many pages a file has."""
    import pypdfium2

    return len(pypdfium2.PdfDocument(path))


def long(sources: list[Path], count: int, target: Path) -> Path:
    """A file of `count` pages: those of the sources, again and again."""
    import pypdfium2

    whole = pypdfium2.PdfDocument.new()
    for source in itertools.cycle(sources):
        left = count - len(whole)
        if not left:  # PDFium takes no pages for all pages
            break
        document = pypdfium2.PdfDocument(source)
        whole.import_pages(document, list(range(min(len(document), left))))
    whole.save(target)
    return target
