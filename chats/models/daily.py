"""How much each user has asked, day by day."""

from django.conf import settings
from django.db import models


class DailyMessages(models.Model):
    """Questions of one user on one day, those that are stored nowhere and further answers included.

    It outlives what it counts, so that deleting a chat gives nothing back.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    day = models.DateField()
    count = models.PositiveIntegerField(default=0)

    class Meta:
        """One row a user and day."""

        constraints = (models.UniqueConstraint(fields=("owner", "day"), name="one_count_a_day"),)

    def __str__(self) -> str:
        return f"{self.owner_id} {self.day}: {self.count}"
