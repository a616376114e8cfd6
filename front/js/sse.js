// The events of a run over plain HTTP, for networks that let no WebSocket through.

/** Call `onFrame` with each envelope after `afterSeq`; resolves when the server ends the stream. */
export async function readEvents(runId, afterSeq, onFrame, signal) {
  const response = await fetch(`/api/v1/runs/${runId}/events`, {
    headers: { Accept: "text/event-stream", "Last-Event-ID": String(afterSeq) },
    credentials: "same-origin",
    signal,
  });
  if (!response.ok) throw Object.assign(new Error("events"), { status: response.status });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value.replace(/\r\n?/g, "\n");
    const parts = buffer.split("\n\n");
    buffer = parts.pop();
    for (const part of parts) {
      const frame = parseEvent(part, runId);
      if (frame) onFrame(frame);
    }
  }
}

function parseEvent(text, runId) {
  const fields = { event: "", id: "", data: [] };
  for (const line of text.split("\n")) {
    if (line.startsWith(":")) continue;
    const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (name === "data") fields.data.push(value);
    else if (name) fields[name] = value;
  }
  if (!fields.data.length) return null;
  let data;
  try {
    data = JSON.parse(fields.data.join("\n"));
  } catch {
    return null;
  }
  if (data && data.type && "data" in data) return data;
  return { type: fields.event, run_id: runId, chat_id: null, seq: Number(fields.id), data };
}
