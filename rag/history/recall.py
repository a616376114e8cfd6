"""Questions that ask for something of the conversation itself.

"처음에 말한 예산", "아까 내가 뭐라고 했지?", "what did I say about the budget?".
"""

import re

_SAID_KO = (
    r"(?:말씀|말|얘기|이야기|언급|설명|알려|물어|물었|물은|질문|답변|답|대답|논의|의논|합의|결정|정한|정했|정하|"
    r"추천|제안|요청|부탁|나눈|나눴|나온|나왔|적은|적었|했던|했지|했더|했었|그랬|기억)"
)
_EARLIER_KO = (
    r"(?:아까|방금|조금\s?전|앞서|앞에서|이전에|예전에|전에|처음에|맨\s?처음|초반에|초기에|지난번에?|저번에?|"
    r"그때|이\s?대화에서|대화\s?중에?|지금까지)"
)
_ASKED_BACK_KO = r"(?:지|죠|더라|던가|었나|었어|었지|나요|었죠|는지)"
_WE_EN = r"(?:i|we|you)"
_SAID_EN = (
    r"(?:say|said|tell|told|ask|asked|mention|mentioned|decide|decided|agree|agreed|discuss|"
    r"discussed|talk|talked|suggest|suggested|recommend|recommended|state|stated|promise|promised)"
)
_TOLD_EN = r"(?:told|mentioned|said|discussed|talked about|agreed|decided)"
_EARLIER_EN = r"(?:earlier|before|previously|at first|initially|at the (?:beginning|start|outset))"
_PHRASES = (
    rf"{_EARLIER_KO}.{{0,30}}?{_SAID_KO}",
    rf"(?:내가|제가|우리가?|네가|니가|당신이|너는?|저희가?)\s.{{0,30}}?{_SAID_KO}.{{0,8}}?(?:{_ASKED_BACK_KO}|[은던]\s|다고)",
    rf"(?:라고|다고|냐고|자고|[이]?랬|로|하기로)\s?(?:말\s?|얘기\s?|이야기\s?)?(?:했|하셨|정했|알려\s?줬|불렀|그랬){_ASKED_BACK_KO}",
    r"(?:뭐|무엇|무어|누구|언제|어디|얼마|몇\s?\w{1,4})(?:이?라고|다고)\s?(?:말\s?|얘기\s?|이야기\s?)?했(?:어|나|니|습니까)",
    r"(?:였|이었|었|했)더라",
    r"기억\s?(?:나|해|하|안\s?나)",
    r"(?:우리|나|내|저희|제)\s?(?:가\s)?(?:얘기한|이야기한|말한|논의한|정한|말했던|얘기했던|이야기했던|물어본|물었던)",
    r"(?:첫\s?(?:번째\s)?|맨\s?처음|처음|\d{1,4}번째)\s?(?:질문|물음|대화|답변|차례|턴)",
    rf"\b{_EARLIER_EN}\b.{{0,30}}?\b{_WE_EN}\b.{{0,20}}?\b{_SAID_EN}\b",
    rf"\b{_WE_EN}\b.{{0,20}}?\b{_SAID_EN}\b.{{0,40}}?\b{_EARLIER_EN}\b",
    rf"\bdid\s{_WE_EN}\s(?:\w{{1,12}}\s)?{_SAID_EN}\b",
    rf"\b{_WE_EN}(?:'ve| have| had)?\s(?:already\s)?{_TOLD_EN}\b",
    r"\b(?:do you |can you )?(?:remember|recall)\s(?:when|that|what|who|which|how|the|my|our)\b",
    r"\bremind me\b",
    r"\b(?:my|our|the) (?:very )?first (?:question|message)\b",
    r"\b(?:earlier|so far) in (?:this|our) (?:conversation|chat)\b",
)
_RECALLS = re.compile("|".join(f"(?:{one})" for one in _PHRASES), re.IGNORECASE)
_FRAME = re.compile(
    rf"{_EARLIER_KO}|(?:뭐|무엇|뭘|누구|언제|어디|얼마|몇)?(?:이?라고|다고)\s?(?:말\s?|얘기\s?)?"
    rf"(?:했|하셨|그랬|알려\s?줬){_ASKED_BACK_KO}|"
    r"(?:내가|제가|우리가|네가|니가|당신이)\s|(?:말|얘기|이야기|언급|설명|질문|대화)(?:한|했던|하던|해\s?준|한\s?거|했)|"
    r"기억\s?(?:나|해|하)\S{0,3}|(?:알려\s?준|물어본|물었던|정한|나눈)|"
    rf"\b{_EARLIER_EN}\b|\b(?:what|who|when|where|which|how)?\s?did\s{_WE_EN}\s{_SAID_EN}\b|"
    rf"\b{_WE_EN}(?:'ve| have| had)?\s{_SAID_EN}\b|\b(?:do you |can you )?(?:remember|recall)\b|"
    r"\bremind me\b|\b(?:in|of) (?:this|our) (?:conversation|chat)\b",
    re.IGNORECASE,
)
_NTH = re.compile(
    r"(?<!\d)(\d{1,4})\s?번째\s?(?:질문|물음|대화|답변|차례|턴)|"
    r"\b(?:question|message|turn)\s(?:number\s)?(\d{1,4})\b",
    re.IGNORECASE,
)
_FIRST = re.compile(
    r"(?:맨\s?처음|처음|첫\s?(?:번째)?)\s?(?:에\s)?(?:내가\s|제가\s)?.{0,10}?(?:질문|물음|물었|물어|대화|뭐라고)|"
    r"\bfirst (?:question|message|thing)\b|\bask(?:ed)? (?:you )?first\b",
    re.IGNORECASE,
)
LONGEST = 500
"""Characters of a question that are read: what it asks for stands near an end of it."""


def recalls(text: str) -> bool:
    """True when a question asks for something that was said in the conversation."""
    return any(_RECALLS.search(part) for part in (text[:LONGEST], text[-LONGEST:]))


def subject(text: str) -> str:
    """The question without the words that only say that it recalls: what it is about."""
    return " ".join(_FRAME.sub(" ", text[:LONGEST]).split())


def place(text: str) -> int | None:
    """The number of the turn that a question names by its place: "3번째 질문", "first question"."""
    if match := _NTH.search(text[:LONGEST]):
        return int(match[1] or match[2])
    return 1 if _FIRST.search(text[:LONGEST]) else None
