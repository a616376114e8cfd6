"""What is right of questions, dialogues and answers, for tests and for benchmarks."""
