"""Sample documents for the first run, written by us; all organisations are invented."""

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Sample:
    """A file of this folder, the name it is shown under, and what is known about it."""

    file: str
    name: str
    metadata: dict[str, str] = field(default_factory=dict)


SAMPLES = (
    Sample(
        "care-system-notice.pdf",
        "해솔시 통합돌봄 정보시스템 제안요청서.pdf",
        {
            "issuer": "해솔시 스마트도시과",
            "project_name": "2027년 해솔시 통합돌봄 정보시스템 구축",
        },
    ),
    Sample(
        "ventilator-manual.md",
        "라온 HX-200 환기청정기 사용 설명서.md",
        {"issuer": "라온공조"},
    ),
    Sample(
        "gateway-note.docx",
        "TG-4 gateway commissioning note.docx",
        {"issuer": "Tidewater Instruments"},
    ),
)
