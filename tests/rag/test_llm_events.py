"""Server-sent events out of bytes, wherever the network cuts them."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.adapters import stream
from rag.adapters.stream import Decoder

LINES = st.lists(
    st.one_of(
        st.sampled_from([b"", b"", b": ping", b"data:", b"event: error", b"id: 7", b"x: y"]),
        st.text("가힣{}:, \ufeffa", max_size=12).map(lambda text: b"data: " + text.encode()),
    ),
    max_size=20,
)
ENDINGS = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=20, max_size=20)


def decode(*parts):
    decoder = Decoder()
    events = [event for part in parts for event in decoder.feed(part)]
    return events + decoder.close()


def cut_body(body, cuts):
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    return [body[start:end] for start, end in itertools.pairwise(places)]


@given(LINES, ENDINGS)
def test_every_line_of_data_is_an_event(lines, endings):
    body = b"".join(line + end for line, end in zip(lines, endings, strict=False))
    said = [line.removeprefix(b"data:").strip() for line in lines if line.startswith(b"data:")]
    assert decode(body) == said


@given(LINES, ENDINGS, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_gives_the_same_events(lines, endings, cuts):
    body = b"".join(line + end for line, end in zip(lines, endings, strict=False))
    assert decode(*cut_body(body, cuts)) == decode(body)


@given(LINES, ENDINGS)
def test_byte_by_byte_gives_the_same_events(lines, endings):
    body = b"".join(line + end for line, end in zip(lines, endings, strict=False))
    assert decode(*(bytes([byte]) for byte in body)) == decode(body)


def test_a_line_ending_cut_in_two_is_one_ending():
    assert decode(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"a", b"b"]


def test_comments_and_other_fields_are_passed_over():
    body = b": OPENROUTER PROCESSING\n\nid: 1\nretry: 5\nevent: x\ndata: a\n\n:\n\n"
    assert decode(body) == [b"a"]


def test_an_event_is_told_as_soon_as_its_line_is_there():
    decoder = Decoder()
    assert decoder.feed(b"data: ") == []
    assert decoder.feed(b"a\r") == [b"a"]
    assert decoder.feed(b"\n") == []


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_last_event_needs_no_blank_line(end):
    assert decode(b"data: a\n\ndata: b" + end) == [b"a", b"b"]


def test_a_body_that_is_one_document_is_one_event_at_its_end():
    body = b'\n{\n "choices": [],\n\n "b": "data: x"\n}\n'
    for cuts in ([], [1], list(range(len(body)))):
        assert [event.strip() for event in decode(*cut_body(body, cuts))] == [body.strip()]


@pytest.mark.parametrize("line", [b"data: ", b"{"])
def test_an_event_without_an_end_is_not_kept_for_ever(monkeypatch, line):
    monkeypatch.setattr(stream, "MAX_EVENT_BYTES", 10_000)
    decoder = Decoder()
    decoder.feed(line)
    with pytest.raises(ValueError, match="without an end"):
        list(map(decoder.feed, [b"x" * 1000] * 100))


def test_a_long_line_in_small_parts_is_put_together():
    text = random.Random(7).randbytes(50_000).hex().encode()
    body = b"data: " + text + b"\n\n"
    assert decode(*(body[at : at + 7] for at in range(0, len(body), 7))) == [text]
