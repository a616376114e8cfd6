"""Decides which pictures of a document are kept; the others are rejected for a reason.

Declared sizes may reject a picture before it is decoded, but never accept one. A picture that
breaks its decoder only loses itself. Pillow is imported within these functions only.
"""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from documents.parsers.base import MAX_PICTURES, Picture, ReadingContext

MAX_PIXELS = 40_000_000
"""A picture that declares more is not decoded."""
MAX_DECODED_PIXELS = 300_000_000
"""Decoded pixels of one document, so that pictures do not take too much time."""
MAX_SIDE_PIXELS = 1600
"""The largest size that vision models read without scaling it down themselves."""
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
MAX_GREY = 255
LEAST_WHITE_GREY = 245
"""Greys from here on count as white."""
_GRID_PIXELS = (128, 128)
_MAX_DIFFERENCE_GREYS = 16
"""Two pictures look the same where no cell of the grid differs by more greys than this."""
_MAX_PNG_COLOURS = 4096
"""Drawings have no more; they stay sharp as PNG, photographs become JPEG."""
_PNG_LEVEL = 3
"""Of PNG: nearly as small as the best level, which takes most of the time of a document."""
PictureBox = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class FoundPicture:
    """A picture as it stands in the file, not yet decoded.

    `key` identifies its bytes; `width` and `height` are as declared. `load` decodes it, upright,
    and may raise anything.
    """

    key: str
    width: int
    height: int
    load: Callable[[], Any]
    page: int | None = None
    box: PictureBox | None = None
    offset: int | None = None
    cost: int = 0
    """Pixels to decode for it, if more than its own."""


class PictureSieve:
    """Judges the pictures of one document in their order and reports them with the verdict."""

    def __init__(self, context: ReadingContext) -> None:
        self._context = context
        self._rules = context.pictures
        self._reported = 0
        self._decoded = 0
        self._verdicts: dict[str, tuple[str, str]] = {}
        self._thumbnails: list[tuple[Any, str]] = []

    @property
    def is_full(self) -> bool:
        """Whether no further picture can be kept."""
        return self._context.pictures_kept >= self._rules.max_pictures

    def add_file(self, name: str, read: Callable[[], bytes], offset: int | None = None) -> None:
        """Add an encoded picture, the part `name` of a package, at offset `offset` of the text."""
        from PIL import Image

        if not self._rules.max_pictures:
            return
        unknown = FoundPicture(hash_bytes(name.encode()), 0, 0, _load_nothing, offset=offset)
        try:
            data = read()
            image = Image.open(io.BytesIO(data), formats=FORMATS)
        except Image.DecompressionBombError:
            self._report(unknown, "too_large")
        except Exception:  # noqa: BLE001 - a picture that breaks its decoder is lost alone
            self._report(unknown, "broken")
        else:
            load = partial(_load_upright, image)
            self.add(FoundPicture(hash_bytes(data), *image.size, load, offset=offset))

    def add(self, picture: FoundPicture, rejected: str = "") -> None:
        """Judge and report a picture, unless its parser has `rejected` it."""
        digest, verdict = self._verdicts.get(picture.key, ("", ""))
        rejected = rejected or verdict or self._judge_undecoded(picture)
        if rejected:
            self._report(picture, rejected, digest)
        else:
            self._judge_decoded(picture)

    def _judge_undecoded(self, picture: FoundPicture) -> str:
        """Why the picture is not decoded at all; "" if it is."""
        pixels = picture.width * picture.height
        shorter, longer = sorted((picture.width, picture.height))
        if pixels < self._rules.min_pixels:
            return "too_small"
        if longer > shorter * self._rules.max_ratio:
            return "thin"
        if pixels > MAX_PIXELS:
            return "too_large"
        cost = max(pixels, picture.cost)
        if self.is_full or self._decoded + cost > MAX_DECODED_PIXELS:
            return "too_many"
        self._decoded += cost
        return ""

    def _judge_decoded(self, picture: FoundPicture) -> None:
        """Decode, judge and report the picture; remember the verdict for its copies."""
        try:
            decoded = picture.load()
            opaque = not decoded.has_transparency_data or decoded.getextrema()[-1][0] == MAX_GREY
            image = reduce_image(decoded)
            grey = image.convert("L")
            rejected = self._judge_dullness(grey)
            thumbnail = grey.resize(_GRID_PIXELS)
            duplicate_digest = "" if rejected else self._find_duplicate(thumbnail)
        except Exception:  # noqa: BLE001 - a picture that breaks its decoder is lost alone
            self._report(picture, "broken")
            return
        digest = duplicate_digest or hashlib.sha256(image.tobytes()).hexdigest()
        rejected = rejected or ("duplicate" if duplicate_digest else "")
        if opaque:  # the same bytes may look different with another mask
            self._verdicts[picture.key] = digest, rejected or "duplicate"
        if rejected:
            self._report(picture, rejected, digest)
            return
        self._thumbnails.append((thumbnail, digest))
        self._report(picture, "", digest, *encode_image(image))

    def _judge_dullness(self, grey: Any) -> str:
        """Why there is nothing to see in a picture; "" if there is."""
        from PIL import ImageFilter, ImageStat

        rules, counts = self._rules, grey.histogram()
        if ImageStat.Stat(grey).var[0] < rules.min_variance:
            return "flat"
        if sum(counts[:LEAST_WHITE_GREY]) < rules.min_nonwhite * sum(counts):
            return "blank"
        edges = grey.filter(ImageFilter.FIND_EDGES)
        inner = edges.crop((1, 1, edges.width - 1, edges.height - 1))  # the rim is not filtered
        return "smooth" if ImageStat.Stat(inner).mean[0] < rules.min_edges else ""

    def _find_duplicate(self, thumbnail: Any) -> str:
        """The digest of a kept picture that looks the same."""
        from PIL import ImageChops

        for other, digest in self._thumbnails:
            difference: Any = ImageChops.difference(thumbnail, other)
            if difference.getextrema()[1] <= _MAX_DIFFERENCE_GREYS:
                return digest
        return ""

    def _report(
        self,
        picture: FoundPicture,
        rejected: str,
        digest: str = "",
        content_type: str = "",
        data: bytes = b"",
    ) -> None:
        self._reported += 1
        if self._reported > MAX_PICTURES:
            self._context.warn("pictures_uncounted")
            return
        self._context.emit_picture(
            Picture(
                picture.page,
                digest or picture.key,
                picture.width,
                picture.height,
                picture.box,
                rejected,
                content_type,
                data,
                picture.offset,
            )
        )


def hash_bytes(*parts: bytes) -> str:
    """A key for these bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def read_declared_size(data: bytes) -> tuple[int, int]:
    """Width and height declared in an encoded picture; 0 and 0 if unknown."""
    from PIL import Image

    try:
        return Image.open(io.BytesIO(data)).size
    except Image.DecompressionBombError:
        return MAX_PIXELS, MAX_PIXELS
    except Exception:  # noqa: BLE001 - a picture that breaks its decoder is lost alone
        return 0, 0


def reduce_image(image: Any) -> Any:
    """The image on white, in RGB, scaled to `MAX_SIDE_PIXELS`, without metadata."""
    from PIL import Image

    image.thumbnail((MAX_SIDE_PIXELS, MAX_SIDE_PIXELS))
    if image.mode.startswith("I;16"):
        image = image.point(lambda value: value / 256, "L")
    paper = Image.new("RGB", image.size, "white")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        paper.paste(image, mask=image)
    else:
        paper.paste(image.convert("RGB"))
    return paper


def encode_image(image: Any) -> tuple[str, bytes]:
    """Content type and bytes of an RGB image."""
    target = io.BytesIO()
    if colours := image.getcolors(_MAX_PNG_COLOURS):
        if all(red == green == blue for _, (red, green, blue) in colours):
            image = image.convert("L")  # a third of the bytes and the time
        image.save(target, "PNG", compress_level=_PNG_LEVEL)
        return "image/png", target.getvalue()
    image.save(target, "JPEG", quality=88)
    return "image/jpeg", target.getvalue()


def _load_upright(image: Any) -> Any:
    """Decoded no larger than needed, turned as its EXIF says."""
    from PIL import ImageOps

    image.draft(image.mode, (MAX_SIDE_PIXELS, MAX_SIDE_PIXELS))
    return ImageOps.exif_transpose(image)


def _load_nothing() -> None:
    """Stand for a picture that cannot be decoded."""
