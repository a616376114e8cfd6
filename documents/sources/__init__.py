"""Sources: what fills a library by itself and keeps it in step."""
