"""The formats that can be read: content types, and what file names call them."""

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
HWP = "application/x-hwp"
HWPX = "application/hwp+zip"
HTML = "text/html"
MARKDOWN = "text/markdown"
TEXT = "text/plain"

EXTENSIONS = {
    "pdf": PDF,
    "docx": DOCX,
    "hwp": HWP,
    "hwpx": HWPX,
    "html": HTML,
    "htm": HTML,
    "xhtml": HTML,
    "md": MARKDOWN,
    "markdown": MARKDOWN,
    "txt": TEXT,
    "text": TEXT,
}

LABELS = {
    PDF: "PDF",
    DOCX: "DOCX",
    HWP: "HWP",
    HWPX: "HWPX",
    HTML: "HTML",
    MARKDOWN: "Markdown",
    TEXT: "text",
}
"""What people call them; for `params` of errors."""


def extension(name: str) -> str:
    """The lower-case extension of a file name, without the dot; "" if there is none."""
    stem, dot, end = name.rpartition(".")
    return end.lower() if dot and stem else ""
