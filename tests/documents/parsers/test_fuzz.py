"""Mutated files of every format: a child may die, its parent lives, memory is bounded."""

import contextlib
import io
import random
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from documents.parsers import formats
from documents.parsers.base import Limits, ParseFailed
from documents.parsers.hwp import binary
from documents.parsers.sandbox import client
from tests.support import DATA, NO_DATA

LIMITS = Limits(seconds=10, memory=1 << 30)
GRACE = 5.0
"""Seconds above its limit after which a reading counts as hung."""
LARGEST = 60_000
"""Bytes of a sample: small ones have more of their structure hit."""
SAMPLE, ROUNDS, SHARDS = 10, 75, 4
"""Mutations of each kind in every run; those of a shard in a whole run, and how many shards."""
KINDS = {
    "pdf": ("pdf/pdfjs_small", "pdf/docling", "bad-inputs/pdf"),
    "docx": ("docx/docling", "docx/mammoth"),
    "hwp": ("hwp/hwpjs_pairs", "hwp/hwplib"),
    "hwpx": ("hwp/hwpjs_pairs", "hwp/hwpxlib"),
    "md": ("ko_docs/rust_book", "bad-inputs/text"),
    "txt": ("bad-inputs/text",),
    "html": ("bad-inputs/pdf",),
}
"""Samples by extension; whole, 7 kinds x 4 shards x 75 rounds are 2,100 mutations."""
Mutation = Callable[[random.Random, bytes], bytes]


def list_samples(kind: str) -> list[bytes]:
    if kind == "html":
        return [HTML]
    paths = [path for name in KINDS[kind] for path in sorted((DATA / name).rglob(f"*.{kind}"))]
    found = [path.read_bytes() for path in paths if 0 < path.stat().st_size <= LARGEST]
    if not found:
        pytest.skip(NO_DATA)
    return found


HTML = (
    "<!doctype html><html><head><meta charset='utf-8'><title>규정</title></head><body>"
    "<h1>휴가</h1><p>연차는 15일이다.</p><table><tr><th rowspan=2>구분</th><th>값</th></tr>"
    "<tr><td>1</td></tr></table><ul><li>가<ol><li>나</li></ol></li></ul><pre>x = 1</pre>"
    "</body></html>"
).encode()


def flip(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 16)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(chance: random.Random, data: bytes) -> bytes:
    start = chance.randrange(len(data))
    if chance.random() < 0.5:
        return data[:start]
    return data[:start] + data[start + chance.randint(1, 200) :]


def duplicate(chance: random.Random, data: bytes) -> bytes:
    start = chance.randrange(len(data))
    piece = data[start : start + chance.randint(1, 2_000)]
    return data[:start] + piece * chance.randint(2, 20) + data[start:]


MUTATIONS: tuple[Mutation, ...] = (flip, cut, duplicate)


def mutate_part(chance: random.Random, data: bytes, mutation: Mutation) -> bytes:
    """The package with one of its parts mutated, so that more than its checksums are tried."""
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        parts = {entry.filename: package.read(entry) for entry in package.infolist()}
    name = chance.choice([name for name, part in parts.items() if part])
    parts[name] = mutation(chance, parts[name])
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as package:
        for part_name, part in parts.items():
            package.writestr(part_name, part)
    return target.getvalue()


def mutate(chance: random.Random, data: bytes) -> bytes:
    mutation = chance.choice(MUTATIONS)
    if zipfile.is_zipfile(io.BytesIO(data)) and chance.random() < 0.7:
        return mutate_part(chance, data, mutation)
    return mutation(chance, data)


def read(path: Path) -> int:
    """Read as the worker does; a refusal is a good end. The most memory that its child held."""
    try:
        content_type = formats.detect_content_type(path, path.name)
        reading = client.read_document(path, content_type, path.name, LIMITS)
    except ParseFailed:
        return 0
    with contextlib.suppress(ParseFailed), reading:
        for page in reading:
            assert all(0 <= one.start <= one.end <= len(page.text) for one in page.regions)
            page.text.encode()
    return reading.peak_bytes


def list_shards() -> list[Any]:
    """Kind, shard and rounds; the first rounds of the first shard are the sample of every run."""
    whole = [
        pytest.param(kind, shard, ROUNDS, marks=pytest.mark.whole, id=f"{kind}-{shard}")
        for kind in KINDS
        for shard in range(SHARDS)
    ]
    return [pytest.param(kind, 0, SAMPLE, id=kind) for kind in KINDS] + whole


@pytest.mark.parametrize(("kind", "shard", "rounds"), list_shards())
def test_a_mutated_file_ends_within_its_limits(
    kind: str, shard: int, rounds: int, tmp_path: Path
) -> None:
    chance, originals = random.Random(f"{kind} {shard}"), list_samples(kind)
    path = tmp_path / f"a.{kind}"
    peaks = []
    for turn in range(rounds):
        path.write_bytes(mutate(chance, chance.choice(originals)))
        started = time.monotonic()
        peaks.append(read(path))
        took = time.monotonic() - started
        assert took < LIMITS.seconds + GRACE, f"{kind}, shard {shard}, round {turn}"
    assert 0 < max(peaks) < LIMITS.memory


def test_mutated_records_of_hangul_end_in_blocks_or_are_refused() -> None:
    """What the packing of the file hides from mutations of its bytes."""
    import olefile

    chance = random.Random("records")
    folder = DATA / "hwp" / "hwpjs_pairs"
    streams = []
    for path in sorted(folder.glob("*.hwp")) if folder.exists() else ():
        with olefile.OleFileIO(path) as ole:
            if not ole.openstream("FileHeader").read(40)[36] & 2:
                names = ("DocInfo", "BodyText/Section0")
                streams.append(
                    [binary.inflate_stream(ole.openstream(name).read()) for name in names]
                )
    if not streams:
        pytest.skip(NO_DATA)
    ended = 0
    for _ in range(300):
        information, body = chance.choice(streams)
        try:
            info = binary.DocInfo(
                binary.parse_records(chance.choice(MUTATIONS)(chance, information))
            )
            section = binary.HwpSection(
                binary.parse_records(chance.choice(MUTATIONS)(chance, body)), info
            )
            assert all(
                isinstance(paragraph.text, str) for paragraph in section.iterate_paragraphs()
            )
        except ParseFailed:
            pass
        ended += 1
    assert ended == 300
