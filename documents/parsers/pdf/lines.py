"""Writes lines of a page as text, and says where each character of it stands."""

from collections.abc import Sequence

from documents.parsers.pdf.geometry import clipped, clipped_all
from documents.parsers.pdf.rows import Row
from documents.parsers.pdf.runs import HYPHEN, Run
from documents.parsers.pdf.wrap import Wrapping
from rag.pages import Line


class Writer:
    """Text that grows, with the lines that its characters stand on."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.length = 0
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """All that was put."""
        return "".join(self._parts)

    def put(self, text: str) -> None:
        """Text that stands nowhere."""
        self._parts.append(text)
        self.length += len(text)

    def run(self, run: Run) -> None:
        """Text with its places, and hyphens for PDFium's sign of one."""
        if run.text:
            start, end = self.length, self.length + len(run.text)
            y0, y1 = clipped(run.box.y0), clipped(run.box.y1)
            self.lines.append(Line(start, end, y0, y1, clipped_all(run.edges, run.box)))
            self.put(run.text.replace(HYPHEN, "-"))

    def rows(self, rows: Sequence[Row], wrapping: Wrapping, line_end: str = "\n") -> list[int]:
        """Rows with a line end between them, or none where a word goes on; where each begins."""
        starts = []
        for index, row in enumerate(rows):
            below = rows[index + 1 : index + 2]
            cut, text = wrapping.seam(row, *below) if below else (0, "")
            starts.append(self.length)
            self._row(row, cut)
            self.put(text.replace("\n", line_end))
        return starts

    def paragraph(self, text: str, lines: Sequence[Line]) -> int:
        """Text with lines of its own after a blank line; where it begins."""
        self.part()
        start = self.length
        self.lines += (
            Line(start + line.start, start + line.end, line.y0, line.y1, line.edges)
            for line in lines
        )
        self.put(text)
        return start

    def part(self) -> None:
        """A blank line after what there is, if anything."""
        if self.length:
            self.put("\n\n")

    def _row(self, row: Row, cut: int) -> None:
        """The runs of a row, the last one without its last `cut` characters."""
        for space, run in row.spaced_runs():
            self.put(space)
            self.run(_without(run, cut) if cut and run is row.runs[-1] else run)


def _without(run: Run, cut: int) -> Run:
    """A run without its last characters."""
    return run.part(0, len(run.text) - cut)
