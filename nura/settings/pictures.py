"""Which pictures of documents are kept, from the environment."""

from documents.parsers.base import ALL_PICTURES, PictureRules
from nura.settings import env


def build() -> PictureRules:
    """The rules. Raises `ImproperlyConfigured` naming the variable."""
    usual = ALL_PICTURES
    return PictureRules(
        most=env.integer("NURA_PICTURES_MOST", usual.most, most=1000),
        least_pixels=env.integer("NURA_PICTURES_LEAST_PIXELS", usual.least_pixels),
        most_ratio=env.decimal("NURA_PICTURES_MOST_RATIO", usual.most_ratio, least=1.0),
        least_variance=env.decimal("NURA_PICTURES_LEAST_VARIANCE", usual.least_variance),
        least_nonwhite=env.decimal("NURA_PICTURES_LEAST_NONWHITE", usual.least_nonwhite, most=1.0),
        least_edges=env.decimal("NURA_PICTURES_LEAST_EDGES", usual.least_edges),
    )
