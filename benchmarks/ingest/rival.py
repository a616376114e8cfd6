"""The straight way: pdfplumber, a recursive splitter, Chroma."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

SIZE, OVERLAP = 1000, 200
SEPARATORS = ("\n\n", "\n", " ", "")
BATCH = 5_000
"""Chroma takes no more at once."""

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]


class Straight:
    """Reads, splits and adds one file after the other to one collection."""

    def __init__(self, folder: Path, embed: Embed) -> None:
        import chromadb

        client = chromadb.PersistentClient(path=str(folder))
        self._collection = client.create_collection("bench")
        self._embed = embed
        self._count = 0

    def add(self, path: Path) -> int:
        """Make a file searchable; how many chunks it gave."""
        import pdfplumber

        texts: list[str] = []
        pages: list[dict[str, int]] = []
        with pdfplumber.open(path) as document:
            for page in document.pages:
                for text in split(page.extract_text() or ""):
                    texts.append(text)
                    pages.append({"page": page.page_number})
                page.close()
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            ids = [str(self._count + at) for at in range(len(part))]
            self._collection.add(
                ids=ids,
                documents=part,
                embeddings=[list(vector) for vector in self._embed(part)],
                metadatas=pages[start : start + BATCH],  # type: ignore[arg-type]
            )
            self._count += len(part)
        return len(texts)


def split(text: str, separators: Sequence[str] = SEPARATORS) -> Iterator[str]:
    """Chunks of at most `SIZE` characters: by the first separator that helps, then by the next."""
    if len(text) <= SIZE:
        if text.strip():
            yield text
        return
    first, *rest = separators
    pieces = (
        text.split(first) if first else [text[at : at + SIZE] for at in range(0, len(text), SIZE)]
    )
    current = ""
    for piece in pieces:
        if len(current) + len(first) + len(piece) <= SIZE:
            current = f"{current}{first}{piece}" if current else piece
            continue
        if current.strip():
            yield current
        current = current[-OVERLAP:] + first + piece if len(piece) <= SIZE - OVERLAP else piece
        if len(current) > SIZE:
            yield from split(current, rest)
            current = ""
    if current.strip():
        yield current
