"""Small files made in code: Korean PDF, DOCX and HWPX, whole or broken in one point."""

import zipfile
import zlib
from pathlib import Path

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_DOCX_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-'
    'officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_STYLES = (
    f'<w:styles xmlns:w="{W}">'
    '<w:style w:type="paragraph" w:styleId="1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="a5"><w:name w:val="장 제목"/>'
    '<w:basedOn w:val="1"/></w:style>'
    "</w:styles>"
)


def write_zip(path: Path, parts: dict[str, str | bytes]) -> Path:
    """A package of these parts."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return path


def _utf16(text: str) -> str:
    """A text string of PDF, in hexadecimal."""
    return ("\ufeff" + text).encode("utf-16-be").hex()


def docx(path: Path, body: str, **parts: str) -> Path:
    """A Word file with this body (`w:` XML); further parts by name, `footnotes="<w:..."`."""
    document = f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'
    files = {"[Content_Types].xml": _DOCX_TYPES, "word/document.xml": document}
    files |= {"word/styles.xml": _STYLES}
    return write_zip(path, files | {f"word/{name}.xml": xml for name, xml in parts.items()})


def paragraph(text: str, style: str = "") -> str:
    """A Word paragraph."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def hwpx(path: Path, *paragraphs: str, **parts: str) -> Path:
    """A HWPX file of these paragraphs; further parts by path with `__` for `/`."""
    section = (
        '<hs:sec xmlns:hs="http://www.hancom.co.kr/hwpml/2011/section" '
        'xmlns:hp="http://www.hancom.co.kr/hwpml/2011/paragraph">'
        + "".join(
            f'<hp:p id="0"><hp:run><hp:t>{text}</hp:t></hp:run></hp:p>' for text in paragraphs
        )
        + "</hs:sec>"
    )
    package = (
        '<opf:package xmlns:opf="http://www.idpf.org/2007/opf/"><opf:metadata/><opf:manifest>'
        '<opf:item id="header" href="Contents/header.xml" media-type="application/xml"/>'
        '<opf:item id="section0" href="Contents/section0.xml" media-type="application/xml"/>'
        '</opf:manifest><opf:spine><opf:itemref idref="section0"/></opf:spine></opf:package>'
    )
    head = '<hh:head xmlns:hh="http://www.hancom.co.kr/hwpml/2011/head" secCnt="1"/>'
    files = {"mimetype": "application/hwp+zip", "Contents/content.hpf": package}
    files |= {"Contents/header.xml": head, "Contents/section0.xml": section}
    return write_zip(path, files | {name.replace("__", "/"): xml for name, xml in parts.items()})


def words(x: float, y: float, text: str, size: float = 10) -> str:
    """Text of a PDF page as it is drawn; each character is as wide as it is high.

    PDFium sees none of a single character: the font has no shapes to measure.
    """
    return f"BT /F {size} Tf {x} {y} Td <{text.encode('utf-16-be').hex()}> Tj ET\n"


def upward(x: float, y: float, text: str) -> str:
    """Latin text on its side, from the bottom to the top, in a font that has shapes."""
    return f"BT /Latin 10 Tf 0 1 -1 0 {x} {y} Tm ({text}) Tj ET\n"


def column(x: float, y: float, *lines: str) -> str:
    """Lines of a PDF page one below the other, 10 points high."""
    return "".join(words(x, y - 14 * number, line) for number, line in enumerate(lines))


def rules(*lines: tuple[float, float, float, float]) -> str:
    """Straight lines of a PDF page: x and y of both ends."""
    return "".join(f"{x0} {y0} m {x1} {y1} l S\n" for x0, y0, x1, y1 in lines)


class Pdf:
    """Writes a PDF of Korean lines without a font file: codes are UTF-16, ToUnicode says so."""

    def __init__(self, *, title: str = "", box: str = "0 0 600 800", extra: str = "") -> None:
        self._objects: list[bytes] = [b"", b""]  # the catalog and the page tree come last
        self._pages: list[int] = []
        self._bookmarks: list[tuple[int, str]] = []
        self._title, self._box, self._extra = title, box, extra
        cmap = (
            "/CIDInit /ProcSet findresource begin begincmap\n"
            "1 begincodespacerange <0000> <FFFF> endcodespacerange\n"
            "256 beginbfrange\n"
            + "".join(f"<{high:02X}00> <{high:02X}FF> <{high:02X}00>\n" for high in range(256))
            + "endbfrange endcmap end end\n"
        )
        to_unicode = self._stream(cmap.encode())
        descendant = self._add(
            "<</Type/Font/Subtype/CIDFontType2/BaseFont/Test/DW 1000/CIDSystemInfo"
            "<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>/FontDescriptor"
            "<</Type/FontDescriptor/FontName/Test/Flags 4/FontBBox[0 -200 1000 900]"
            "/Ascent 800/Descent -200/ItalicAngle 0/CapHeight 700/StemV 80>>>>"
        )
        self._font = self._add(
            "<</Type/Font/Subtype/Type0/BaseFont/Test/Encoding/Identity-H"
            f"/DescendantFonts[{descendant} 0 R]/ToUnicode {to_unicode} 0 R>>"
        )

    def page(
        self,
        *lines: tuple[float, float, str],
        rotate: int = 0,
        bookmark: str = "",
        drawn: str = "",
    ) -> "Pdf":
        """Add a page of lines: left and baseline in points, text; 20 points high and wide.

        `drawn` is what comes after them: see `words` and `rules`.
        """
        content = self._stream(("".join(words(*line, size=20) for line in lines) + drawn).encode())
        number = self._add(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/CropBox[{self._box}]/Rotate {rotate}"
            f"/Contents {content} 0 R/Resources<</Font<</F {self._font} 0 R"
            f"/Latin<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>{self._extra}>>"
        )
        self._pages.append(number)
        if bookmark:
            self._bookmarks.append((number, bookmark))
        return self

    def write(self, path: Path) -> Path:
        """The file."""
        outlines = self._outlines()
        info = self._add(f"<</Title<{_utf16(self._title)}>>>")
        kids = " ".join(f"{number} 0 R" for number in self._pages)
        self._objects[0] = f"<</Type/Catalog/Pages 2 0 R{outlines}>>".encode()
        self._objects[1] = f"<</Type/Pages/Kids[{kids}]/Count {len(self._pages)}>>".encode()
        output, offsets = b"%PDF-1.7\n", []
        for number, body in enumerate(self._objects, start=1):
            offsets.append(len(output))
            output += b"%d 0 obj\n%s\nendobj\n" % (number, body)
        start = len(output)
        output += b"xref\n0 %d\n0000000000 65535 f \n" % (len(offsets) + 1)
        output += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
        output += b"trailer<</Size %d/Root 1 0 R/Info %d 0 R>>\n" % (len(offsets) + 1, info)
        path.write_bytes(output + b"startxref\n%d\n%%%%EOF\n" % start)
        return path

    def _outlines(self) -> str:
        """Bookmarks, all on the first level."""
        if not self._bookmarks:
            return ""
        root = len(self._objects) + 1
        last = root + len(self._bookmarks)
        self._add(f"<</Type/Outlines/First {root + 1} 0 R/Last {last} 0 R/Count {last - root}>>")
        for page, title in self._bookmarks:
            here = len(self._objects) + 1
            following = f"/Next {here + 1} 0 R" if here < last else ""
            self._add(
                f"<</Title<{_utf16(title)}>/Parent {root} 0 R/Dest[{page} 0 R/Fit]{following}>>"
            )
        return f"/Outlines {root} 0 R"

    def _add(self, body: str) -> int:
        self._objects.append(body.encode())
        return len(self._objects)

    def _stream(self, data: bytes) -> int:
        packed = zlib.compress(data)
        head = b"<</Length %d/Filter/FlateDecode>>stream\n" % len(packed)
        self._objects.append(head + packed + b"\nendstream")
        return len(self._objects)
