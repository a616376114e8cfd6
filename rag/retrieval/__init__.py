"""Finding passages: legs, fusion, gate and reranking."""
