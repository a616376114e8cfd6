"""The gateway's wire as any program sees it, without OpenAI's client."""

import json

import httpx2 as httpx

ASKED = [{"role": "user", "content": "숙박비 상한은 얼마인가요?"}]


def make_body(text=ASKED[0]["content"], *before, **fields):
    """A body with one question, after messages as pairs of role and text."""
    messages = [{"role": role, "content": said} for role, said in (*before, ("user", text))]
    return {"model": "nura", "messages": messages, **fields}


def connect_program(web, key=None, **headers):
    """A client of the gateway with this key."""
    own = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=f"{web.url}/v1", headers={**own, **headers}, timeout=60)


def parse_events(lines):
    """Server-sent events by the rules of the HTML standard: (event, data) and ("comment", text)."""
    name, data = "", []
    for line in lines:
        if not line:
            if data:
                yield name or "message", "\n".join(data)
            name, data = "", []
        elif line.startswith(":"):
            yield "comment", line[1:].removeprefix(" ")
        else:
            field, _, value = line.partition(":")
            if field == "data":
                data.append(value.removeprefix(" "))
            elif field == "event":
                name = value.removeprefix(" ")


def stream_answer(http, body, **headers):
    """Status, headers, and all server-sent events of a streamed answer."""
    with http.stream(
        "POST", "/chat/completions", json={**body, "stream": True}, headers=headers
    ) as response:
        if response.status_code != 200:
            response.read()
            return response, []
        return response, list(parse_events(response.iter_lines()))


def decode_chunks(told):
    """The JSON of a stream's data, its [DONE] checked and left out."""
    data = [text for kind, text in told if kind == "message"]
    assert data[-1] == "[DONE]"
    return [json.loads(text) for text in data[:-1]]


def join_text(told):
    """The joined text of a stream."""
    found = [
        one["choices"][0]["delta"].get("content") for one in decode_chunks(told) if one["choices"]
    ]
    return "".join(filter(None, found))
