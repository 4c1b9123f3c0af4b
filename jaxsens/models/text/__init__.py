"""Models of texts: token ids in, one place for noise on their embeddings."""
