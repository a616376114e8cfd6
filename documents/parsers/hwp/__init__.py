"""Documents of Hangul: HWP 5 (binary records) and HWPX (OWPML). Both become the same blocks."""
