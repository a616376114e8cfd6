"""Embedding spaces."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class EmbeddingSpace(models.Model):
    """A model and its width: vectors of one space are comparable. Exactly one space is active.

    `base_url` is the endpoint of the model, empty for one in the workers. `unrelated` is the mean
    cosine of chunks that have nothing to do with each other; None until it was measured.
    """

    model = models.CharField(max_length=255, verbose_name=_("model"))
    dimensions = models.PositiveIntegerField(verbose_name=_("dimensions"))
    languages = models.JSONField(default=list, verbose_name=_("languages"))
    base_url = models.CharField(max_length=500, blank=True, default="", editable=False)
    active = models.BooleanField(default=False, verbose_name=_("active"))
    retired_at = models.DateTimeField(null=True, editable=False, verbose_name=_("in use until"))
    unrelated = models.FloatField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True, verbose_name=_("created at"))

    class Meta:
        """One row a model and width; one active."""

        verbose_name = _("embedding space")
        verbose_name_plural = _("embedding spaces")
        constraints = (
            models.UniqueConstraint(fields=("model", "dimensions"), name="one_space_a_model"),
            models.UniqueConstraint(
                fields=("active",), condition=Q(active=True), name="one_active"
            ),
        )

    def __str__(self) -> str:
        return f"{self.model} ({self.dimensions})"
