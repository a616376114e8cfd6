"""Which pictures of a document are worth a look: each is kept, or rejected for a reason.

Sizes are believed before anything is decoded and only downwards; a picture that breaks its decoder
is lost alone. Pillow is used within these functions only.
"""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from documents.parsers.base import MAX_PICTURES, Picture, ReadingContext

MAX_PIXELS = 40_000_000
"""Pixels of a picture, declared, beyond which it is not decoded."""
MAX_DECODED_PIXELS = 300_000_000
"""Pixels decoded of one document, so that pictures never take the time of its text."""
MAX_SIDE_PIXELS = 1600
"""Pixels: what vision models read without making it smaller themselves."""
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
MAX_GREY = 255
LEAST_WHITE_GREY = 245
"""Greys from here on are paper."""
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

    `key` tells its bytes from all others'; `width` and `height` are as declared. `load` decodes
    it, upright, and may raise anything.
    """

    key: str
    width: int
    height: int
    load: Callable[[], Any]
    page: int | None = None
    box: PictureBox | None = None
    offset: int | None = None
    cost: int = 0
    """Pixels that are decoded for it, where they are more than its own."""


class PictureSieve:
    """Looks at the pictures of one document in their order and hands them on with its verdict."""

    def __init__(self, context: ReadingContext) -> None:
        self._context = context
        self._rules = context.pictures
        self._told = 0
        self._decoded = 0
        self._verdicts: dict[str, tuple[str, str]] = {}
        self._looks: list[tuple[Any, str]] = []

    @property
    def is_full(self) -> bool:
        """No further picture can be kept."""
        return self._context.pictures_kept >= self._rules.most

    def add_file(self, name: str, read: Callable[[], bytes], at: int | None = None) -> None:
        """Add an encoded picture, the part `name` of a package, at offset `at` of the text."""
        from PIL import Image

        if not self._rules.most:
            return
        unknown = FoundPicture(hash_bytes(name.encode()), 0, 0, _load_nothing, offset=at)
        try:
            data = read()
            image = Image.open(io.BytesIO(data), formats=FORMATS)
        except Image.DecompressionBombError:
            self._report(unknown, "too_large")
        except Exception:  # noqa: BLE001 - a picture that breaks its decoder is lost alone
            self._report(unknown, "broken")
        else:
            load = partial(_load_upright, image)
            self.add(FoundPicture(hash_bytes(data), *image.size, load, offset=at))

    def add(self, found: FoundPicture, rejected: str = "") -> None:
        """Decide on a picture, unless its reader has (`rejected`)."""
        digest, verdict = self._verdicts.get(found.key, ("", ""))
        rejected = rejected or verdict or self._judge_undecoded(found)
        if rejected:
            self._report(found, rejected, digest)
        else:
            self._judge_decoded(found)

    def _judge_undecoded(self, found: FoundPicture) -> str:
        """Why it is not decoded at all."""
        pixels = found.width * found.height
        shorter, longer = sorted((found.width, found.height))
        if pixels < self._rules.least_pixels:
            return "too_small"
        if longer > shorter * self._rules.most_ratio:
            return "thin"
        if pixels > MAX_PIXELS:
            return "too_large"
        cost = max(pixels, found.cost)
        if self.is_full or self._decoded + cost > MAX_DECODED_PIXELS:
            return "too_many"
        self._decoded += cost
        return ""

    def _judge_decoded(self, found: FoundPicture) -> None:
        """Decode it, keep it or say why not, and remember that for its copies."""
        try:
            loaded = found.load()
            opaque = not loaded.has_transparency_data or loaded.getextrema()[-1][0] == MAX_GREY
            image = reduce_image(loaded)
            grey = image.convert("L")
            rejected = self._judge_dullness(grey)
            look = grey.resize(_GRID_PIXELS)
            twin = "" if rejected else self._find_duplicate(look)
        except Exception:  # noqa: BLE001 - a picture that breaks its decoder is lost alone
            self._report(found, "broken")
            return
        digest = twin or hashlib.sha256(image.tobytes()).hexdigest()
        rejected = rejected or ("duplicate" if twin else "")
        if opaque:  # the same bytes may look another way behind another mask
            self._verdicts[found.key] = digest, rejected or "duplicate"
        if rejected:
            self._report(found, rejected, digest)
            return
        self._looks.append((look, digest))
        self._report(found, "", digest, *encode_image(image))

    def _judge_dullness(self, grey: Any) -> str:
        """What is wrong with a picture without anything to read; empty: nothing."""
        from PIL import ImageFilter, ImageStat

        rules, counts = self._rules, grey.histogram()
        if ImageStat.Stat(grey).var[0] < rules.least_variance:
            return "flat"
        if sum(counts[:LEAST_WHITE_GREY]) < rules.least_nonwhite * sum(counts):
            return "blank"
        edges = grey.filter(ImageFilter.FIND_EDGES)
        inner = edges.crop((1, 1, edges.width - 1, edges.height - 1))  # the rim is not filtered
        return "smooth" if ImageStat.Stat(inner).mean[0] < rules.least_edges else ""

    def _find_duplicate(self, look: Any) -> str:
        """The digest of a kept picture that looks the same."""
        from PIL import ImageChops

        for other, digest in self._looks:
            difference: Any = ImageChops.difference(look, other)
            if difference.getextrema()[1] <= _MAX_DIFFERENCE_GREYS:
                return digest
        return ""

    def _report(
        self,
        found: FoundPicture,
        rejected: str,
        digest: str = "",
        content_type: str = "",
        data: bytes = b"",
    ) -> None:
        self._told += 1
        if self._told > MAX_PICTURES:
            self._context.warn("pictures_uncounted")
            return
        self._context.emit_picture(
            Picture(
                found.page,
                digest or found.key,
                found.width,
                found.height,
                found.box,
                rejected,
                content_type,
                data,
                found.offset,
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
    """On white, in RGB, no side longer than `MAX_SIDE_PIXELS`, without metadata."""
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
            image = image.convert("L")  # the same picture in a third of the bytes and of the time
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
