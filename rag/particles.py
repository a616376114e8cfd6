"""Korean particles at the end of a word, for texts and words that the morphological analyser does not settle."""

PARTICLES = tuple(
    sorted(
        (
            "은 는 이 가 을 를 의 에 도 만 로 와 과 나 랑 야 라 께 아 여 "
            "에서 에게 에는 에도 에만 에의 으로 까지 부터 보다 처럼 마다 조차 마저 밖에 하고 이나 이랑 이며 이란 이라 "
            "이고 이다 인가 이야 라는 란 께서 한테 대로 만큼 커녕 같이 뿐 로서 로써 로는 로도 와의 과의 와는 과는 에서는 에서도 "
            "에서의 에게는 에게서 으로는 으로도 으로서 으로써 으로의 까지는 까지도 까지의 부터는 부터의 보다는 보다도 "
            "이라는 이라고 라고 이라도 라도 이든 든지 이든지 인지 입니다 입니까 인가요 이에요 예요 이란게 에서부터 에서만"
        ).split(),
        key=len,
        reverse=True,
    )
)


def strip(word: str) -> str:
    """The word without its particle, longest match first; at least one syllable stays."""
    for particle in PARTICLES:
        if len(word) > len(particle) and word.endswith(particle):
            return word[: -len(particle)]
    return word
