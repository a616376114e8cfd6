"""Embedding spaces, and the change from one to another."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from jobs.lease import Job


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


class ReindexState(models.TextChoices):
    """WAITING -> FILLING -> INDEXING -> COMPARING -> SWAPPED | REFUSED; FAILED, REPLACED."""

    WAITING = "waiting", _("Waiting")
    FILLING = "filling", _("Embedding")
    INDEXING = "indexing", _("Indexing")
    COMPARING = "comparing", _("Comparing")
    SWAPPED = "swapped", _("Done")
    REFUSED = "refused", _("Refused")
    FAILED = "failed", _("Failed")
    REPLACED = "replaced", _("Replaced by another")


class Reindexing(Job):
    """One change, at most one of them open.

    The process at work holds its lease; see `documents.reindex.change`. `attempts` counts slices
    in a row that embed nothing, because they fail or are killed. `done` of `total` chunks were
    looked at. `background`: the workers do it, and take it up again. `report` holds the comparison
    of both spaces.
    """

    OPEN = Q(open=True)

    model = models.CharField(max_length=255, verbose_name=_("model"))
    base_url = models.CharField(max_length=500, blank=True, default="")
    languages = models.JSONField(default=list)
    space = models.ForeignKey(
        "documents.EmbeddingSpace", models.SET_NULL, null=True, related_name="reindexings"
    )
    background = models.BooleanField(default=False)
    open = models.BooleanField(default=True)
    state = models.CharField(
        max_length=10,
        choices=ReindexState.choices,
        default=ReindexState.WAITING,
        verbose_name=_("state"),
    )
    done = models.PositiveBigIntegerField(default=0)
    total = models.PositiveBigIntegerField(default=0)
    report = models.JSONField(default=dict)
    error = models.CharField(max_length=500, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        """One open change."""

        app_label = "documents"
        verbose_name = _("re-embedding")
        verbose_name_plural = _("re-embeddings")
        ordering = ("-pk",)
        constraints = (
            models.UniqueConstraint(
                fields=("open",), condition=Q(open=True), name="one_open_reindexing"
            ),
        )

    def __str__(self) -> str:
        return f"{self.model} ({self.state})"
