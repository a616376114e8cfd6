"""Hangul's equation script as a line that people and searches can read."""

import re

_MOST = 4_000
"""Characters of a script that are looked at; longer ones stay as they are."""
_SYMBOLS = """
    times=× div=÷ cdot=· pm=± plusminus=± minusplus=∓ le=≤ leq=≤ ge=≥ geq=≥ ne=≠ neq=≠
    approx=≈ equiv=≡ inf=∞ infty=∞ infinity=∞ sum=∑ prod=∏ int=∫ dint=∬ tint=∭ oint=∮
    partial=∂ nabla=∇ triangle=△ angle=∠ deg=° therefore=∴ because=∵ in=∈ notin=∉ subset=⊂
    supset=⊃ cup=∪ cap=∩ emptyset=∅ forall=∀ exist=∃ rarrow=→ larrow=← uparrow=↑ downarrow=↓
    lrarrow=↔ cdots=⋯ ldots=… prime=′ alpha=α beta=β gamma=γ delta=δ epsilon=ε zeta=ζ eta=η
    theta=θ kappa=κ lambda=λ mu=μ nu=ν xi=ξ pi=π rho=ρ sigma=σ tau=τ phi=φ chi=χ psi=ψ
    omega=ω
    GAMMA=Γ DELTA=Δ THETA=Θ LAMBDA=Λ XI=Ξ PI=Π SIGMA=Σ PHI=Φ PSI=Ψ OMEGA=Ω
"""
_WORDS = dict(pair.split("=") for pair in _SYMBOLS.split())
"""Words of the script and the characters that they stand for; Greek capitals in capitals."""
_DROPPED = re.compile(r"\b(?:left|right|rm|it|bold|roman|lsub|lsup)\b", re.IGNORECASE)
_MATRIX = re.compile(r"\b[bdp]?matrix\b|\bcases\b|\bpile\b|\blpile\b|\brpile\b", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]+")
_GROUP = re.compile(r"\{([^{}]*)\}")
_DEEPEST = 40


def text(script: str) -> str:
    """The script on one line: fractions as (a)/(b), roots as √(x), Greek letters as letters."""
    script = " ".join(script.replace("`", " ").replace("~", " ").replace("#", " ; ").split())
    if len(script) > _MOST:
        return script
    script = _MATRIX.sub("", _DROPPED.sub("", script)).replace("&", " , ")
    script = script.replace("->", "→").replace("<-", "←")
    for _ in range(_DEEPEST):
        folded = _GROUP.sub(lambda group: _held(group[1]), script)
        if folded == script:
            break
        script = folded
    script = _WORD.sub(lambda word: _symbol(word[0]), _fractions(script))
    script = script.translate({ord("\ue000"): "(", ord("\ue001"): ")"})
    return re.sub(r"\s*([\^_])\s*", r"\1", " ".join(script.split()))


def _held(inside: str) -> str:
    """What braces held together: in brackets of our own, unless it is one piece."""
    inside = _fractions(inside).strip()
    single = bool(re.fullmatch(r"[\w.]+|\ue000[^\ue000\ue001]*\ue001", inside))
    return f" {inside} " if single or not inside else f" \ue000{inside}\ue001 "


def _fractions(text_: str) -> str:
    """`a over b` as `a/b`, `sqrt x` as `√x`."""
    text_ = re.sub(r"\s+(?:over|atop)\s+", "/", text_, flags=re.IGNORECASE)
    return re.sub(r"\bsqrt\s*", "√", text_, flags=re.IGNORECASE)


def _symbol(word: str) -> str:
    return _WORDS.get(word) or _WORDS.get(word.lower()) or word
