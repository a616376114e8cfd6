"""How many questions a user may ask a day: counted here alone, whichever way they come in."""

import math
from datetime import date, datetime, time, timedelta

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from chats.errors import QuotaMessages
from chats.models import DailyMessages


def spend(owner_id: int) -> None:
    """Count one question. The caller's transaction takes it back where the question fails.

    Raises `QuotaMessages`.
    """
    most = settings.QUOTA_MESSAGES_PER_DAY
    day = timezone.localdate()
    new = DailyMessages(owner_id=owner_id, day=day)
    DailyMessages.objects.bulk_create([new], ignore_conflicts=True)
    today = DailyMessages.objects.filter(owner_id=owner_id, day=day)
    allowed = today.filter(count__lt=most) if most else today
    if not allowed.update(count=F("count") + 1):
        raise QuotaMessages(limit=most, retry_after=_seconds_left(day))


def spent(owner_id: int) -> int:
    """Questions of today."""
    today = DailyMessages.objects.filter(owner_id=owner_id, day=timezone.localdate())
    return today.values_list("count", flat=True).first() or 0


def _seconds_left(day: date) -> int:
    midnight = datetime.combine(day + timedelta(days=1), time.min)
    left = timezone.make_aware(midnight) - timezone.now()
    return max(1, math.ceil(left.total_seconds()))
