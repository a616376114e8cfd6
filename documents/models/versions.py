"""Files of a document besides the current one, and the pictures found in it."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from documents.models.document import Document


class DocumentVersion(models.Model):
    """A file of a document that is not the one it stands for now: to come, gone before, or refused.

    The document's own row is the current version. A version to come takes its place in the
    transaction that writes its index; the one that it replaces stays here with its text, so that
    old answers open what they were drawn from.
    """

    class State(models.TextChoices):
        """PENDING -> OLD (it became current and was replaced since) | REFUSED."""

        PENDING = "pending", _("Waiting")
        OLD = "old", _("Replaced")
        REFUSED = "refused", _("Refused")

    document = models.ForeignKey(Document, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=8, choices=State.choices, default=State.PENDING)
    name = models.CharField(max_length=255)
    original_name = models.CharField(max_length=1024)
    file = models.FileField(max_length=255)
    content_type = models.CharField(max_length=127)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    page_count = models.PositiveIntegerField(null=True)
    text = models.TextField(blank=True, default="")
    page_starts = models.JSONField(default=list)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_params = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        """One row a number."""

        ordering = ("document", "-number")
        constraints = (
            models.UniqueConstraint(fields=("document", "number"), name="one_row_a_version"),
        )

    def __str__(self) -> str:
        return f"{self.document_id} v{self.number}"


class DocumentPicture(models.Model):
    """A picture found in a document; `rejected` is why it was not kept, empty for a kept one.

    `box` is where it stands on its page. `description` is what the vision model `model` read in
    it, None until it was asked.
    """

    document = models.ForeignKey(Document, models.CASCADE, related_name="pictures")
    index = models.PositiveIntegerField()
    page = models.PositiveIntegerField(null=True)
    digest = models.CharField(max_length=64)
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()
    box = models.JSONField(null=True)
    rejected = models.CharField(max_length=20, blank=True, default="")
    file = models.FileField(max_length=255, blank=True, default="")
    content_type = models.CharField(max_length=40, blank=True, default="")
    description = models.TextField(null=True)  # noqa: DJ001 - an empty description is one, too
    model = models.CharField(max_length=255, blank=True, default="")

    class Meta:
        """One row an index."""

        ordering = ("document", "index")
        constraints = (
            models.UniqueConstraint(fields=("document", "index"), name="one_row_a_picture"),
        )

    def __str__(self) -> str:
        return f"{self.document_id} picture {self.index}"
