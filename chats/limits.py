"""How fast one socket may talk."""

import time

FRAMES = 60
SECONDS = 10.0


class FrameLimit:
    """A bucket of `FRAMES` that refills over `SECONDS`."""

    def __init__(self) -> None:
        self._left = float(FRAMES)
        self._seen = time.monotonic()

    def allows(self) -> bool:
        """Take one frame out; False when the bucket is empty."""
        now = time.monotonic()
        self._left = min(FRAMES, self._left + (now - self._seen) * FRAMES / SECONDS)
        self._seen = now
        self._left -= 1.0
        return self._left >= 0.0
