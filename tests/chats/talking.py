"""A person who talks over REST with the real engine, a worker behind it, and own documents."""

from dataclasses import dataclass

from django.core.files.base import ContentFile

from documents import ingest, services
from documents.models import Document

TRAVEL = """# 출장 규정

## 숙박비
숙박비 상한은 1박에 90,000원이며, 서울은 110,000원으로 한다.

## 정산
출장비는 출장을 마친 날부터 14일 이내에 영수증을 붙여 정산한다. 늦으면 부서장의 확인서를 낸다.

## 예외
국외 출장의 여비는 재무팀장이 따로 정한다.
"""
LEAVE = """# 휴가 규정

## 연차
연차 휴가는 한 해에 15일이며, 3년 이상 일하면 2년마다 하루를 더한다.

## 신청
휴가는 시작하기 3일 전까지 인사 시스템에서 신청한다. 정산하지 않은 연차는 수당으로 준다.

## 예외
경조 휴가는 당일에 신청할 수 있다.
"""
SECURITY = """# 보안 지침

## 출입
방문객은 안내 데스크에서 출입증을 받고 담당자와 함께 들어온다.

## 반출
노트북을 반출하려면 보안팀의 승인을 받고, 반출 기간은 7일을 넘지 못한다.
"""


def add_document(owner, name, text):
    """An uploaded and ingested document."""
    document, _created = services.upload_document(
        owner=owner, name=name, content=ContentFile(text.encode())
    )
    ingest.ingest_next_document()
    document.refresh_from_db()
    assert document.status == Document.Status.COMPLETED, document.error_code
    return document


@dataclass
class Talk:
    """One chat over the API."""

    api: object
    chat_id: str | None = None
    turn: dict | None = None

    def say(self, content, **fields):
        """Send a message and wait; the assistant's message."""
        body = {"content": content, "chat_id": self.chat_id, **fields}
        response = self.api.post("/api/v1/messages", body, format="json")
        assert response.status_code == 201, response.data
        self.turn = response.data
        self.chat_id = response.data["chat_id"]
        return response.data["assistant_message"]

    def get(self, path, **query):
        """JSON under the chat's own address."""
        response = self.api.get(f"/api/v1/chats/{self.chat_id}{path}", query)
        assert response.status_code == 200, response.data
        return response.data

    def trace(self, message):
        """The steps of an answer."""
        return self.api.get(f"/api/v1/messages/{message['id']}/trace").data


def list_document_names(message):
    """Names of the documents that an answer shows, by slot."""
    shown = {source["slot"]: source["document_name"] for source in message["sources"] or ()}
    return [shown[slot] for slot in sorted(shown)]
