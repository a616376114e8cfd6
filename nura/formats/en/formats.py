"""English dates and times, as `front/js/format.js` has them from the browser."""

DATE_FORMAT = "F j, Y"
DATETIME_FORMAT = r"F j, Y \a\t g:i A"
SHORT_DATE_FORMAT = "M j, Y"
SHORT_DATETIME_FORMAT = "M j, Y, g:i A"
TIME_FORMAT = "g:i A"
