"""Korean dates: "오후" stands before the hour, behind which Django puts it."""

DATETIME_FORMAT = "Y년 n월 j일 A g:i"
TIME_FORMAT = "A g:i"
