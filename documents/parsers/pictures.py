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

from documents.parsers.base import MOST_PICTURES, Context, Picture

LARGEST = 40_000_000
"""Pixels of a picture, declared, beyond which it is not decoded."""
MOST_DECODED = 300_000_000
"""Pixels decoded of one document, so that pictures never take the time of its text."""
LONGEST_SIDE = 1600
"""Pixels: what vision models read without making it smaller themselves."""
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
WHITEST = 255
WHITE = 245
"""Greys from here on are paper."""
_GRID = (128, 128)
_ALIKE = 16
"""Two pictures look the same where no cell of the grid differs by more greys than this."""
_FEW_COLOURS = 4096
"""Drawings have no more; they stay sharp as PNG, photographs become JPEG."""
_QUICK = 3
"""Of PNG: nearly as small as the best level, which takes most of the time of a document."""
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Found:
    """A picture as it stands in the file, not yet decoded.

    `key` tells its bytes from all others'; `width` and `height` are as declared. `load` decodes
    it, upright, and may raise anything.
    """

    key: str
    width: int
    height: int
    load: Callable[[], Any]
    page: int | None = None
    box: Box | None = None
    at: int | None = None
    cost: int = 0
    """Pixels that are decoded for it, where they are more than its own."""


class Sieve:
    """Looks at the pictures of one document in their order and hands them on with its verdict."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rules = context.pictures
        self._told = 0
        self._decoded = 0
        self._verdicts: dict[str, tuple[str, str]] = {}
        self._looks: list[tuple[Any, str]] = []

    @property
    def full(self) -> bool:
        """No further picture can be kept."""
        return self._context.pictures_kept >= self._rules.most

    def file(self, name: str, read: Callable[[], bytes], at: int | None = None) -> None:
        """An encoded picture, the part `name` of a package, which stands at `at` in the text."""
        from PIL import Image

        if not self._rules.most:
            return
        unknown = Found(key_of(name.encode()), 0, 0, _nothing, at=at)
        try:
            data = read()
            image = Image.open(io.BytesIO(data), formats=FORMATS)
        except Image.DecompressionBombError:
            self._tell(unknown, "too_large")
        except Exception:  # noqa: BLE001 - a picture that breaks its decoder is lost alone
            self._tell(unknown, "broken")
        else:
            load = partial(_upright, image)
            self.take(Found(key_of(data), *image.size, load, at=at))

    def take(self, found: Found, rejected: str = "") -> None:
        """Decide on a picture, unless its reader has (`rejected`)."""
        digest, verdict = self._verdicts.get(found.key, ("", ""))
        rejected = rejected or verdict or self._undecoded(found)
        if rejected:
            self._tell(found, rejected, digest)
        else:
            self._look(found)

    def _undecoded(self, found: Found) -> str:
        """Why it is not decoded at all."""
        pixels = found.width * found.height
        shorter, longer = sorted((found.width, found.height))
        if pixels < self._rules.least_pixels:
            return "too_small"
        if longer > shorter * self._rules.most_ratio:
            return "thin"
        if pixels > LARGEST:
            return "too_large"
        cost = max(pixels, found.cost)
        if self.full or self._decoded + cost > MOST_DECODED:
            return "too_many"
        self._decoded += cost
        return ""

    def _look(self, found: Found) -> None:
        """Decode it, keep it or say why not, and remember that for its copies."""
        try:
            loaded = found.load()
            opaque = not loaded.has_transparency_data or loaded.getextrema()[-1][0] == WHITEST
            image = reduced(loaded)
            grey = image.convert("L")
            rejected = self._dull(grey)
            look = grey.resize(_GRID)
            twin = "" if rejected else self._twin(look)
        except Exception:  # noqa: BLE001 - a picture that breaks its decoder is lost alone
            self._tell(found, "broken")
            return
        digest = twin or hashlib.sha256(image.tobytes()).hexdigest()
        rejected = rejected or ("duplicate" if twin else "")
        if opaque:  # the same bytes may look another way behind another mask
            self._verdicts[found.key] = digest, rejected or "duplicate"
        if rejected:
            self._tell(found, rejected, digest)
            return
        self._looks.append((look, digest))
        self._tell(found, "", digest, *encoded(image))

    def _dull(self, grey: Any) -> str:
        """What is wrong with a picture without anything to read; empty: nothing."""
        from PIL import ImageFilter, ImageStat

        rules, counts = self._rules, grey.histogram()
        if ImageStat.Stat(grey).var[0] < rules.least_variance:
            return "flat"
        if sum(counts[:WHITE]) < rules.least_nonwhite * sum(counts):
            return "blank"
        edges = grey.filter(ImageFilter.FIND_EDGES)
        inner = edges.crop((1, 1, edges.width - 1, edges.height - 1))  # the rim is not filtered
        return "smooth" if ImageStat.Stat(inner).mean[0] < rules.least_edges else ""

    def _twin(self, look: Any) -> str:
        """The digest of a kept picture that looks the same."""
        from PIL import ImageChops

        for other, digest in self._looks:
            difference: Any = ImageChops.difference(look, other)
            if difference.getextrema()[1] <= _ALIKE:
                return digest
        return ""

    def _tell(
        self,
        found: Found,
        rejected: str,
        digest: str = "",
        content_type: str = "",
        data: bytes = b"",
    ) -> None:
        self._told += 1
        if self._told > MOST_PICTURES:
            self._context.warn("pictures_uncounted")
            return
        self._context.picture(
            Picture(
                found.page,
                digest or found.key,
                found.width,
                found.height,
                found.box,
                rejected,
                content_type,
                data,
                found.at,
            )
        )


def key_of(*parts: bytes) -> str:
    """A key for these bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height as an encoded picture declares them; 0 and 0 where it cannot be told."""
    from PIL import Image

    try:
        return Image.open(io.BytesIO(data)).size
    except Image.DecompressionBombError:
        return LARGEST, LARGEST
    except Exception:  # noqa: BLE001 - a picture that breaks its decoder is lost alone
        return 0, 0


def reduced(image: Any) -> Any:
    """On white, in RGB, no side longer than `LONGEST_SIDE`, without metadata."""
    from PIL import Image

    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    if image.mode.startswith("I;16"):
        image = image.point(lambda value: value / 256, "L")
    paper = Image.new("RGB", image.size, "white")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        paper.paste(image, mask=image)
    else:
        paper.paste(image.convert("RGB"))
    return paper


def encoded(image: Any) -> tuple[str, bytes]:
    """Content type and bytes of an RGB image."""
    target = io.BytesIO()
    if colours := image.getcolors(_FEW_COLOURS):
        if all(red == green == blue for _, (red, green, blue) in colours):
            image = image.convert("L")  # the same picture in a third of the bytes and of the time
        image.save(target, "PNG", compress_level=_QUICK)
        return "image/png", target.getvalue()
    image.save(target, "JPEG", quality=88)
    return "image/jpeg", target.getvalue()


def _upright(image: Any) -> Any:
    """Decoded no larger than needed, turned as its EXIF says."""
    from PIL import ImageOps

    image.draft(image.mode, (LONGEST_SIDE, LONGEST_SIDE))
    return ImageOps.exif_transpose(image)


def _nothing() -> None:
    """Stand for a picture that cannot be decoded."""
