"""The gateway's wire as any program sees it, without OpenAI's client."""

import json

import httpx2 as httpx

ASKED = [{"role": "user", "content": "숙박비 상한은 얼마인가요?"}]


def asked(text=ASKED[0]["content"], *before, **fields):
    """A body with one question, after messages as pairs of role and text."""
    messages = [{"role": role, "content": said} for role, said in (*before, ("user", text))]
    return {"model": "nura", "messages": messages, **fields}


def program(web, key=None, **headers):
    """A client of the gateway with this key."""
    own = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=f"{web.url}/v1", headers={**own, **headers}, timeout=60)


def events(lines):
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


def streamed(http, body, **headers):
    """Status, headers, and all server-sent events of a streamed answer."""
    with http.stream(
        "POST", "/chat/completions", json={**body, "stream": True}, headers=headers
    ) as response:
        if response.status_code != 200:
            response.read()
            return response, []
        return response, list(events(response.iter_lines()))


def chunks(told):
    """The JSON of a stream's data, its [DONE] checked and left out."""
    data = [text for kind, text in told if kind == "message"]
    assert data[-1] == "[DONE]"
    return [json.loads(text) for text in data[:-1]]


def text_of(told):
    """The joined text of a stream."""
    found = [one["choices"][0]["delta"].get("content") for one in chunks(told) if one["choices"]]
    return "".join(filter(None, found))
