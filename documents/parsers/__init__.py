"""File readers, one per format, each run in a limited child process, without Django."""
