"""Reading a question: what kind it is and what it is about."""
