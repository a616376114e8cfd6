"""What tables, files and queues show of the invariants; run within the product's own settings."""

import json
from datetime import timedelta
from typing import Any

from django.db.models import Count, F, Q, QuerySet
from django.utils import timezone

from chats.models import Message, Run
from documents.models import Chunk, Deletion, Document
from jobs import connections
from nura.backup.integrity import inspect_installation

MAX_NAMED = 5
LATE = timedelta(minutes=3)


def tell_violations() -> None:
    """Print what does not hold, as JSON: name -> [how many, some of them]."""
    found = {}
    for name, rows in _list_violations().items():
        named = [str(one) for one in rows]
        if named:
            found[name] = [len(named), named[:MAX_NAMED]]
    print("found", json.dumps(found, ensure_ascii=False))


def _list_violations() -> dict[str, Any]:
    unended = Document.objects.filter(status="PROCESSING").exclude(stage="paused")
    counted = Document.objects.filter(status="COMPLETED").annotate(n=Count("chunks"))
    answers = Message.objects.filter(role="assistant")
    is_answer = Q(children__role="assistant")
    questions = Message.objects.filter(role="user").annotate(n=Count("children", filter=is_answer))
    ended = answers.exclude(status="STREAMING").annotate(n=Count("turn"))
    late = Deletion.objects.filter(erased_at=None, due_at__lt=timezone.now() - LATE)
    return {
        "I1 document neither ended nor at work": _keys(unended),
        "I2 document with other chunks than it says": _keys(counted.exclude(n=F("chunk_count"))),
        "I2 chunk of another owner": _keys(Chunk.objects.exclude(owner_id=F("document__owner_id"))),
        "I3 question without an answer": _keys(questions.filter(n=0)),
        "I3 answer that does not end": _keys(answers.filter(status="STREAMING")),
        "I3 run that does not end": _keys(Run.objects.filter(ended_at=None)),
        "I3 answer without its one turn": _keys(ended.exclude(n=1)),
        "I3 run taken twice": _find_doubled(),
        "I6 verify": inspect_installation().damage,
        "I6 deletion that should be done": _keys(late),
        "I7 foreign document in an answer": _find_foreign(answers),
        "I8 message that waits": range(connections.get_client().xlen("nura:answers")),
    }


def _keys(rows: QuerySet[Any]) -> list[Any]:
    return list(rows.values_list("pk", flat=True))


def _find_doubled() -> list[str]:
    """Questions stored twice: each says its client id, and copies of forks have no run."""
    asked = Message.objects.filter(role="user", children__run__isnull=False)
    counted = asked.values("content").annotate(n=Count("pk", distinct=True))
    return list(counted.filter(n__gt=1).values_list("content", flat=True))


def _find_foreign(answers: QuerySet[Message]) -> list[Any]:
    owners = {str(pk): owner for pk, owner in Document.objects.values_list("pk", "owner_id")}
    gone = Deletion.objects.filter(kind="document").values_list("key", "owner_id")
    owners |= dict(gone)
    found = []
    for answer in answers.select_related("chat").iterator():
        ids = [one["document_id"] for one in answer.sources or ()]
        ids += (answer.scope or {}).get("document_ids", [])
        mine = answer.chat.owner_id
        found += [answer.pk for one in ids if owners.get(str(one), mine) != mine]
    return found
