"""Pictures of pages, rendered once and kept in the data folder until the document goes."""

import os
import tempfile
from pathlib import Path

from django.http import Http404

from documents import files
from documents.models import Document
from documents.parsers.kinds import PDF


def page_png(*, document: Document, number: int) -> bytes:
    """A page of a PDF as PNG. Raises `Http404` where there is no such page."""
    if document.content_type != PDF or not 1 <= number <= (document.page_count or 0):
        raise Http404
    kept = files.cache_folder(document.pk) / f"{document.sha256[:16]}-{number}.png"
    try:
        return kept.read_bytes()
    except FileNotFoundError:
        from documents import rendering

        with files.local(document) as path:
            png = rendering.page_png(path, number)
        _keep(kept, png)
        return png


def _keep(path: Path, png: bytes) -> None:
    """Write beside and rename: a reader never sees half a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
        draft.write(png)
    os.replace(draft.name, path)
