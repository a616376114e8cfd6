"""Turns of the answers that were there before the turn store."""

from collections import defaultdict

from django.db import migrations

from documents import metadata

SNIPPET = 200
AT_ONCE = 200


def fill(apps, schema_editor):
    """One chat after the other, so that a large installation needs little memory."""
    messages = apps.get_model("chats", "Message")
    turns = apps.get_model("chats", "Turn")
    for chat_id in apps.get_model("chats", "Chat").objects.values_list("pk", flat=True).iterator():
        rows = list(messages.objects.filter(chat_id=chat_id).order_by("created_at", "id"))
        found = turns_of(rows, turns, _documents(apps, rows))
        turns.objects.bulk_create(found, batch_size=AT_ONCE)


def turns_of(rows, model, documents):
    """The turns of a chat's messages, oldest first, each after the one it follows."""
    messages = {row.pk: row for row in rows}
    done = {}
    for row in rows:
        if row.role == "assistant" and row.status != "STREAMING":
            done[row.pk] = _turn(row, messages, done, model, documents)
    return list(done.values())


def _turn(row, messages, done, model, documents):
    question = messages.get(row.parent_id)
    before = _before(row, messages, done)
    refs = references(row.sources or [], documents)
    turn = model(
        chat_id=row.chat_id,
        message_id=row.pk,
        parent=before,
        number=before.number + 1 if before else 1,
        ts=row.created_at,
        user_text=question.content if question else "",
        assistant_text=row.content,
        question_type=row.question_type,
        mode=row.mode,
        doc_refs=refs,
        document_ids=[ref["document_id"] for ref in refs],
        remembered=_remembered(refs, row.sources or []),
    )
    turn.shown = turn if refs else before and before.shown
    if not refs and before:
        turn.remembered = before.remembered
    return turn


def _before(row, messages, done):
    """The turn of the nearest message above that has one."""
    above = messages.get(row.parent_id)
    while above is not None and above.pk not in done:
        above = messages.get(above.parent_id)
    return done[above.pk] if above is not None else None


def _remembered(refs, sources):
    cited = {source["slot"] for source in sources if source.get("cited")}
    order = sorted(refs, key=lambda ref: (ref["slot"] not in cited, ref["slot"]))
    return [{name: ref[name] for name in ("document_id", "title", "score")} for ref in order]


def references(sources, documents):
    """The documents that an answer showed; of their passages only the beginnings were kept."""
    shown = defaultdict(list)
    for source in sources:
        shown[source["document_id"]].append(source)
    refs = [_reference(found, documents.get(pk)) for pk, found in shown.items()]
    return sorted(refs, key=lambda ref: ref["slot"])


def _reference(sources, document):
    best = max(sources, key=lambda source: source["similarity"])
    name = document.name if document else best["document_name"]
    return {
        "slot": best["slot"],
        "document_id": best["document_id"],
        "title": metadata.to_title(name, document.metadata if document else {}),
        "source": name,
        "uri": f"/api/v1/documents/{best['document_id']}/file",
        "version": document.version if document else 1,
        "checksum": document.sha256 if document else "",
        "chunk_ids": [source["chunk_id"] for source in sources],
        "passages": [source["content_preview"] for source in sources],
        "snippet": best["content_preview"][:SNIPPET],
        "retrieval_method": "",
        "score": best["similarity"],
    }


def _documents(apps, rows):
    """The documents of all sources that are still there, by id as sources write it."""
    wanted = {source["document_id"] for row in rows for source in row.sources or []}
    found = apps.get_model("documents", "Document").objects.filter(pk__in=wanted)
    return {str(document.pk): document for document in found}


class Migration(migrations.Migration):

    dependencies = [
        ("chats", "0002_turns"),
        ("documents", "0004_documentlabel"),
    ]

    operations = [
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
