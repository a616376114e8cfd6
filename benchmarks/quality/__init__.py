"""How well passages are found: question sets, measures, and what is compared."""
