"""Which pictures of documents are kept, from the environment."""

from documents.parsers.base import ALL_PICTURES, PictureRules
from nura.settings import env


def build() -> PictureRules:
    """The rules. Raises `ImproperlyConfigured` naming the variable."""
    usual = ALL_PICTURES
    return PictureRules(
        most=env.read_integer("NURA_PICTURES_MAX", usual.most, maximum=1000),
        least_pixels=env.read_integer("NURA_PICTURES_MIN_PIXELS", usual.least_pixels),
        most_ratio=env.read_decimal(
            "NURA_PICTURES_MAX_ASPECT_RATIO", usual.most_ratio, minimum=1.0
        ),
        least_variance=env.read_decimal("NURA_PICTURES_MIN_VARIANCE", usual.least_variance),
        least_nonwhite=env.read_decimal(
            "NURA_PICTURES_MIN_NONWHITE", usual.least_nonwhite, maximum=1.0
        ),
        least_edges=env.read_decimal("NURA_PICTURES_MIN_EDGES", usual.least_edges),
    )
