"""Tables, reading order and words over line ends of PDFs: our reader beside others."""
