"""A long run of the whole product under use and faults, and what must hold after it."""
