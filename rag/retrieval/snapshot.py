"""Evidence of documents that can no longer be read: what an earlier answer showed of them."""

from collections.abc import Iterable, Iterator

from rag.conversation import DocRef
from rag.types import Hit, Passage


def hits(refs: Iterable[DocRef], limit: int) -> tuple[Hit, ...]:
    """The passages kept with these references, in the order in which they were shown."""
    found = [Hit(passage, 1.0, {"relevance": 1.0}) for ref in refs for passage in _passages(ref)]
    return tuple(found[:limit])


def _passages(ref: DocRef) -> Iterator[Passage]:
    texts = ref.passages or ((ref.snippet,) if ref.snippet else ())
    for place, text in enumerate(texts):
        chunk_id = ref.chunk_ids[place] if place < len(ref.chunk_ids) else ""
        index = chunk_id.rpartition("_")[2]
        yield Passage(
            key=-1 - place,  # no row of the store any more
            document_id=ref.document_id,
            document_name=ref.source or ref.title,
            index=int(index) if index.isascii() and index.isdigit() else place,
            text=text,
            page=None,
            page_end=None,
            section="",
        )
