"""Korean dates and times, as `front/js/format.js` has them from the browser."""

DATETIME_FORMAT = "Y년 n월 j일 A g:i"
SHORT_DATE_FORMAT = "Y. n. j."
SHORT_DATETIME_FORMAT = "Y. n. j. A g:i"
TIME_FORMAT = "A g:i"
