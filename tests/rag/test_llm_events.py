"""Server-sent events out of bytes, wherever the network cuts them."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.llms import sse
from rag.llms.sse import Decoder, Event

LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [b"", b"", b": ping", b"data", b"data:", b"event: error", b"id: 7", b"x: y"]
        ),
        st.text("가힣{}:, \ufeffa", max_size=12).map(lambda text: b"data: " + text.encode()),
    ),
    max_size=20,
)
ENDINGS = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=20, max_size=20)


def decoded(*parts):
    decoder = Decoder()
    events = [event for part in parts for event in decoder.feed(part)]
    return events + decoder.close()


def data(*parts):
    return [event.data for event in decoded(*parts)]


def pieces(body, cuts):
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    return [body[start:end] for start, end in itertools.pairwise(places)]


def by_the_book(lines):
    """The events of these lines as the standard tells them, with the last one never lost."""
    events, held, name = [], [], b""
    for line in (*lines, b""):
        if not line:
            events += [Event(name, b"\n".join(held))] if held else []
            held, name = [], b""
        elif line.startswith(b"data"):
            held.append(line.removeprefix(b"data").removeprefix(b":").removeprefix(b" "))
        elif line == b"event: error":
            name = b"error"
    return events


@given(LINES, ENDINGS)
def test_events_are_those_of_the_standard(lines, endings):
    written = b"".join(line + end for line, end in zip(lines, endings, strict=False))
    if b"\r" not in endings[: len(lines)]:  # CR and an empty line's LF would be one ending
        assert decoded(written) == by_the_book(lines)


@given(LINES, ENDINGS, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_gives_the_same_events(lines, endings, cuts):
    body = b"".join(line + end for line, end in zip(lines, endings, strict=False))
    assert decoded(*pieces(body, cuts)) == decoded(body)


@given(LINES, ENDINGS)
def test_byte_by_byte_gives_the_same_events(lines, endings):
    body = b"".join(line + end for line, end in zip(lines, endings, strict=False))
    assert decoded(*(bytes([byte]) for byte in body)) == decoded(body)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_each_line_ending_ends_a_line(ending):
    assert data(b"data: a" + ending * 2 + b"data: b" + ending * 2) == [b"a", b"b"]


def test_a_line_ending_cut_in_two_is_one_ending():
    assert data(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"a\nb"]


def test_several_data_lines_are_one_event():
    assert data(b"data: a\ndata\ndata:  b\n\n") == [b"a\n\n b"]


def test_comments_and_unknown_fields_are_passed_over():
    assert data(b": OPENROUTER PROCESSING\n\nid: 1\nretry: 5\ndata: a\n\n:\n\n") == [b"a"]


def test_an_event_is_told_as_soon_as_its_blank_line_is_there():
    decoder = Decoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.feed(b"\n\r") == [Event(b"", b"a")]
    assert decoder.feed(b"\n") == []


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_last_event_needs_no_blank_line(end):
    assert data(b"data: a\n\ndata: b" + end) == [b"a", b"b"]


def test_a_byte_order_mark_is_no_part_of_a_name():
    assert data(b"\xef", b"\xbb\xbfda", b"ta: a\n\n") == [b"a"]


def test_the_name_of_an_event_is_its_own():
    assert decoded(b"event: error\ndata: a\n\ndata: b\n\n") == [
        Event(b"error", b"a"),
        Event(b"", b"b"),
    ]


def test_a_line_that_is_called_error_is_an_error():
    assert decoded(b'error: {"code": 500}\n\n') == [Event(b"error", b'{"code": 500}')]


def test_a_body_that_is_one_document_is_one_event_at_its_end():
    body = b'\n{\n "choices": [],\n\n "b": "data: x"\n}\n'
    for cuts in ([], [1], list(range(len(body)))):
        assert [event.data.strip() for event in decoded(*pieces(body, cuts))] == [body.strip()]


@pytest.mark.parametrize("line", [b"data: ", b"data: " + b"x" * 1000 + b"\n", b"{"])
def test_an_event_without_an_end_is_not_kept_for_ever(monkeypatch, line):
    monkeypatch.setattr(sse, "LARGEST", 10_000)
    decoder = Decoder()
    decoder.feed(line)
    more = [line if line.endswith(b"\n") else b"x" * 1000] * 100
    with pytest.raises(ValueError, match="without an end"):
        list(map(decoder.feed, more))


def test_a_long_line_in_small_parts_is_put_together():
    text = random.Random(7).randbytes(50_000).hex().encode()
    body = b"data: " + text + b"\n\n"
    assert data(*(body[at : at + 7] for at in range(0, len(body), 7))) == [text]
