"""A chat as PDF: Markdown becomes a tree, which a Typst template sets in fonts of our own."""
