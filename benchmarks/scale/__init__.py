"""Parts of the speed benchmark: a large library, the product's search in it, and its rivals."""
