"""Finding passages: candidates, fusion, rescoring, relevance."""
