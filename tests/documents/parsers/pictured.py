"""Pictures drawn in code, and files that hold them."""

import functools
import io
import random
import zlib
from pathlib import Path

from PIL import Image, ImageDraw

from tests.documents.parsers.samples import Pdf, W, docx, write_zip

R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"


@functools.cache
def chart(*bars: int, size: tuple[int, int] = (400, 300)) -> Image.Image:
    """Bars of these heights; its top left corner is red, so that turns show."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for place, height in enumerate(bars or (40, 120, 80, 200)):
        draw.rectangle((60 + 70 * place, 280 - height, 100 + 70 * place, 280), fill="navy")
        draw.text((65 + 70 * place, 265 - height), str(height), fill="black")
    draw.line((40, 280, 380, 280), fill="black", width=2)
    draw.rectangle((0, 0, 50, 50), fill="red")
    return image


@functools.cache
def noise(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """Grey specks, another for each seed."""
    bits = random.Random(seed).randbytes(size[0] * size[1])
    return Image.frombytes("L", size, bits).convert("RGB")


def gradient(size: tuple[int, int] = (400, 300)) -> Image.Image:
    """From grey to black without an edge."""
    return Image.linear_gradient("L").resize(size, Image.Resampling.BICUBIC).convert("RGB")


def png(image: Image.Image, **options: object) -> bytes:
    target = io.BytesIO()
    image.save(target, "PNG", **options)
    return target.getvalue()


def jpeg(image: Image.Image, **options: object) -> bytes:
    target = io.BytesIO()
    image.save(target, "JPEG", **options)
    return target.getvalue()


class PicturedPdf(Pdf):
    """A PDF whose pages draw pictures and forms by their names."""

    def picture(self, image: Image.Image, mask: Image.Image | None = None) -> int:
        """An image object; what is black in `mask` does not show."""
        soft = f"/SMask {self._pixels(mask.convert('L'), 'Gray')} 0 R" if mask else ""
        return self._pixels(image.convert("RGB"), "RGB", soft)

    def encoded(self, data: bytes, width: int, height: int, packed: str = "DCTDecode") -> int:
        """An image object of bytes as they are."""
        return self._object(
            f"/Subtype/Image/Width {width}/Height {height}/BitsPerComponent 8"
            f"/ColorSpace/DeviceRGB/Filter/{packed}",
            data,
        )

    def form(self, drawing: str, matrix: str = "1 0 0 1 0 0", **objects: int) -> int:
        """A form that draws these objects."""
        head = f"/Subtype/Form/BBox[-2000 -2000 2000 2000]/Matrix[{matrix}]"
        return self._object(f"{head}/Resources<</XObject<<{_named(objects)}>>>>", drawing.encode())

    def drawn(
        self, drawing: str, *lines: tuple[float, float, str], rotate: int = 0, **objects: int
    ) -> "PicturedPdf":
        """A page of 600 x 800 points that draws, and then writes lines."""
        for x, y, text in lines:
            code = text.encode("utf-16-be").hex()
            drawing += f"\nBT /F 20 Tf {x} {y} Td <{code}> Tj ET"
        content = self._object("", drawing.encode())
        number = self._add(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Rotate {rotate}/Contents {content} "
            f"0 R/Resources<</XObject<<{_named(objects)}>>/Font<</F {self._font} 0 R>>>>>>"
        )
        self._pages.append(number)
        return self

    def _pixels(self, image: Image.Image, space: str, more: str = "") -> int:
        return self._object(
            f"/Subtype/Image/Width {image.width}/Height {image.height}/BitsPerComponent 8"
            f"/ColorSpace/Device{space}/Filter/FlateDecode{more}",
            zlib.compress(image.tobytes()),
        )

    def _object(self, head: str, data: bytes) -> int:
        stream = b"<<%s/Length %d>>stream\n%s\nendstream" % (head.encode(), len(data), data)
        self._objects.append(stream)
        return len(self._objects)


def _named(objects: dict[str, int]) -> str:
    return "".join(f"/{name} {number} 0 R" for name, number in objects.items())


def docx_with(path: Path, body: str, **media: bytes) -> Path:
    """A Word file; `{name}` in its body stands for a paragraph with that picture."""
    shown = {
        name: f'<w:p><w:r><w:drawing><a:blip xmlns:a="{A}" xmlns:r="{R}" r:embed="{name}"/>'
        "</w:drawing></w:r></w:p>"
        for name in media
    }
    docx(path, body.format(**shown))
    relations = "".join(
        f'<Relationship Id="{name}" Type="{R}/image" Target="media/{name}"/>' for name in media
    )
    return add_parts(
        path,
        {
            "word/_rels/document.xml.rels": "<Relationships xmlns="
            '"http://schemas.openxmlformats.org/package/2006/relationships">'
            f"{relations}</Relationships>",
            **{f"word/media/{name}": data for name, data in media.items()},
        },
    )


def add_parts(path: Path, parts: dict[str, str | bytes]) -> Path:
    """The package with further parts."""
    import zipfile

    with zipfile.ZipFile(path) as package:
        before = {name: package.read(name) for name in package.namelist()}
    return write_zip(path, before | parts)


__all__ = ["PicturedPdf", "W", "chart", "docx_with", "gradient", "jpeg", "noise", "png"]
