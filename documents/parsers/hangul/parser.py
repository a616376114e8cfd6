"""HWP 5 and HWPX: both become one page without a number, tables as Markdown."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from documents.parsers import formats
from documents.parsers.archive import Archive
from documents.parsers.base import MEGABYTE, ReadingContext
from documents.parsers.builder import PageBuilder
from documents.parsers.errors import Corrupt, Encrypted
from documents.parsers.hangul import binary, owpml, records
from documents.parsers.hangul.flow import Flow
from documents.parsers.hangul.locks import COMPRESSED, check_hwp, check_hwpx
from documents.parsers.hangul.numbering import Numberer
from documents.parsers.pictures import PictureSieve
from rag.pages import Page

_NOTICE = "상위 버전의 배포용 문서"
_SUMMARY = "\x05HwpSummaryInformation"
_TITLE, _AUTHOR = 2, 4
"""Keys of the summary's properties."""
LARGEST_PICTURE = 100 * MEGABYTE


class HwpParser:
    """Reads .hwp and .hwpx. Their pages exist only when they are laid out: there is one."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The whole document as one page. Raises `Encrypted` for what is locked, by its lock."""
        read = _read_hwpx if context.content_type == formats.HWPX else _read_hwp
        builder = PageBuilder(context)
        margins = read(path, context, builder)
        page = builder.build_page(margins)
        if _NOTICE in page.text[:1000]:
            raise Encrypted(lock="distribution")
        yield page


def _read_hwpx(path: Path, context: ReadingContext, builder: PageBuilder) -> list[str]:
    """The package into the builder; its running headers and footers come back."""
    archive = Archive(path, context.limits)
    check_hwpx(archive)
    context.add_metadata(owpml.properties(archive))
    styles = owpml.Styles(owpml.tree(archive, owpml.HEADER) if owpml.HEADER in archive else None)
    flow = Flow(builder, Numberer(styles.numberings))
    for part in owpml.sections(archive):
        flow.write(owpml.Section(owpml.tree(archive, part), styles.heads).paragraphs())
    sieve, parts = PictureSieve(context), owpml.parts(archive)
    for key, at in flow.images:
        sieve.add_file(key, partial(archive.read_part, parts.get(key, key)), at)
    return flow.margins


def _read_hwp(path: Path, context: ReadingContext, builder: PageBuilder) -> list[str]:
    """The compound file into the builder; its running headers and footers come back."""
    import olefile

    check_hwp(path, context.limits)
    with olefile.OleFileIO(path) as ole:
        stream = _streams(ole)
        context.add_metadata(_summary(ole))
        info = binary.DocInfo(stream(["DocInfo"]))
        flow = Flow(builder, Numberer(info.numberings))
        for entry in binary.sections(ole):
            flow.write(binary.Section(stream(entry), info).paragraphs())
        sieve = PictureSieve(context)
        for name, at in flow.images:
            sieve.add_file(name, partial(_picture, ole, name), at)
    return flow.margins


def _streams(ole: Any) -> Callable[[list[str]], list[records.Record]]:
    """What reads the records of a stream, unpacked where the file is packed."""
    packed = ole.openstream("FileHeader").read(40)[36] & COMPRESSED

    def stream(entry: list[str]) -> list[records.Record]:
        data = ole.openstream(entry).read()
        return records.forest(records.inflated(data) if packed else data)

    return stream


def _picture(ole: Any, name: str) -> bytes:
    """The bytes of a picture; those of most kinds are packed once more."""
    data: bytes = ole.openstream(["BinData", name]).read()
    try:
        return records.inflated(data, LARGEST_PICTURE)
    except Corrupt:  # it was stored as it is
        return data


def _summary(ole: Any) -> dict[str, str]:
    """Title and author as the program keeps them."""
    if not ole.exists(_SUMMARY):
        return {}
    kept = ole.getproperties(_SUMMARY)
    return {
        name: str(kept.get(key, "")).partition("\0")[0]
        for name, key in (("title", _TITLE), ("author", _AUTHOR))
    }
